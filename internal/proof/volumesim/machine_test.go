package volumesim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// machine has the simulated mounts. It outlives agents.
type machine struct {
	mu     sync.Mutex
	mounts map[string]string // the mounted volume, by mount point
	broken []string          // the rules that were broken
}

// breaks records that a rule was broken.
func (m *machine) breaks(rule, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = append(m.broken, rule+": "+what)
}

// mount mounts a volume on a directory. The file that appears in the directory is the volume's data.
func (m *machine) mount(volume, target string) error {
	m.mu.Lock()
	m.mounts[target] = volume
	m.mu.Unlock()
	return os.WriteFile(filepath.Join(target, "data"), nil, 0o600)
}

func (m *machine) unmount(target string) error {
	m.mu.Lock()
	_, was := m.mounts[target]
	delete(m.mounts, target)
	m.mu.Unlock()
	if !was {
		return nil
	}
	return os.Remove(filepath.Join(target, "data"))
}

// crash ends all mounts, as a power cut does.
func (m *machine) crash() {
	for _, target := range m.targets("") {
		_ = m.unmount(target)
	}
}

// targets returns the paths at or below dir on which something is mounted.
func (m *machine) targets(dir string) (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for target := range m.mounts {
		if strings.HasPrefix(target+"/", dir+"/") {
			all = append(all, target)
		}
	}
	slices.Sort(all)
	return all
}

// volumes returns the volumes that are mounted anywhere.
func (m *machine) volumes() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.mounts {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

// publishedTo returns the pods to which a volume is published.
func (m *machine) publishedTo(volume string) (pods []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for target, v := range m.mounts {
		if v == volume && strings.Contains(target, "/pods/") {
			pods = append(pods, podOf(target))
		}
	}
	return pods
}

// podOf returns the pod to which a path belongs.
func podOf(path string) string {
	_, rest, _ := strings.Cut(path, "/pods/")
	uid, _, _ := strings.Cut(rest, "/")
	return uid
}

// host is the machine as one agent sees it. At each call of a method a simulated fault may end the agent.
type host struct {
	hostfs.Host
	m   *machine
	a   *agentLife
	bug *bug
}

var errEnded = errors.New("the agent has ended")

func (h *host) Mounted(dir string) (bool, error) {
	if err := h.a.step(); err != nil {
		return false, err
	}
	return slices.Contains(h.m.targets(dir), dir), nil
}

func (h *host) MountPoints(dir string) ([]string, error) {
	if err := h.a.step(); err != nil {
		return nil, err
	}
	return h.m.targets(dir), nil
}

func (h *host) IsMountPoint(dir string) (bool, error) { return h.Mounted(dir) }

func (h *host) Unmount(target string) error {
	if err := h.a.step(); err != nil {
		return err
	}
	return h.m.unmount(target)
}

func (h *host) RemoveTree(ctx context.Context, dir string) error {
	if err := h.a.step(); err != nil {
		return err
	}
	if below := h.m.targets(dir); len(below) > 0 {
		h.m.breaks(ruleBelow, "removes "+dir+", below which there are mounts: "+strings.Join(below, ", "))
	}
	return h.Host.RemoveTree(ctx, dir)
}
