package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

const mountPoint = "/sys/fs/cgroup"

// hierarchy describes the cgroup hierarchies that the machine has mounted.
type hierarchy struct {
	v2 bool
	// mounts maps a v1 controller to its mount point. On v2 the only key is "". In hybrid mode "" is the v2 hierarchy without
	// controllers, where runtimes also create cgroups.
	mounts map[string]string
	// controllers are the controllers that set limits.
	controllers []string
}

// discover finds the mounted cgroup hierarchies in the mount table.
func discover() (*hierarchy, error) {
	h := &hierarchy{mounts: map[string]string{}}
	if cgroups.IsCgroup2UnifiedMode() {
		h.v2, h.mounts[""] = true, mountPoint
		data, err := os.ReadFile(filepath.Join(mountPoint, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("read cgroup controllers: %w", err)
		}
		h.controllers = strings.Fields(string(data))
		return h, h.complete("cpu", "memory", "pids")
	}
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return nil, fmt.Errorf("read cgroup mounts: %w", err)
	}
	for _, m := range mounts {
		for _, s := range m.Subsystems {
			if _, ok := h.mounts[s]; !ok {
				h.mounts[s] = m.Mountpoint
			}
		}
	}
	h.controllers = slices.Sorted(maps.Keys(h.mounts))
	if cgroups.IsCgroup2HybridMode() {
		h.mounts[""] = filepath.Join(mountPoint, "unified")
	}
	return h, h.complete("cpu", "cpuacct", "cpuset", "memory")
}

func (h *hierarchy) complete(required ...string) error {
	var missing []string
	for _, r := range required {
		if !h.has(r) {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroup controllers %s are missing: mount them (v1) or enable them in the kernel (v2)",
			strings.Join(missing, ", "))
	}
	return nil
}

func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

func (h *hierarchy) hugePageSizes() []string {
	if !h.has("hugetlb") {
		return nil
	}
	return slices.Clone(cgroups.HugePageSizes())
}

// dirs returns the directories of a cgroup, keyed by controller.
func (h *hierarchy) dirs(group string) map[string]string {
	out := make(map[string]string, len(h.mounts))
	for controller, mount := range h.mounts {
		out[controller] = filepath.Join(mount, group)
	}
	return out
}

// dir returns the directory of a cgroup in the hierarchy of one controller. The files of that controller are there.
func (h *hierarchy) dir(controller, group string) string {
	if h.v2 {
		controller = ""
	}
	return filepath.Join(h.mounts[controller], group)
}

// exists reports whether a cgroup exists for every controller that sets limits.
func (h *hierarchy) exists(group string) (bool, error) {
	names := []string{""}
	if !h.v2 {
		names = []string{"cpu", "memory"}
	}
	for _, n := range names {
		switch _, err := os.Stat(h.dir(n, group)); {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("look for cgroup %s: %w", group, err)
		}
	}
	return true, nil
}

// childQuota returns the largest CPU quota of a v1 cgroup's children, scaled to a period; 0: no child has a quota.
func (h *hierarchy) childQuota(group string, period int64) int64 {
	dir := h.dir("cpu", group)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0 // the quotas of the children are unknown; if the pod's quota is too small for them, the kernel refuses it
	}
	var most int64
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		quota, own := readNumber(filepath.Join(dir, e.Name(), "cpu.cfs_quota_us")), readNumber(filepath.Join(dir, e.Name(), "cpu.cfs_period_us"))
		if quota > 0 && own > 0 { // -1 means unlimited
			most = max(most, (quota*period+own-1)/own)
		}
	}
	return most
}

// change returns the limits in the form of the library, as a change of those that the cgroup has. On v2, the usage is compared with a memory
// limit only if the limit becomes lower: a cgroup whose usage is exactly at its limit, as is usual for one with much page cache, may get the
// same limit once more.
func (h *hierarchy) change(group string, l Limits, sizes []string) *cgroups.Resources {
	r := l.resources(h.v2, sizes)
	if h.v2 && l.Memory != nil && *l.Memory > 0 {
		has := readNumber(filepath.Join(h.dir("memory", group), "memory.max")) // 0: there is no limit
		r.MemoryCheckBeforeUpdate = has <= 0 || *l.Memory < has
	}
	return r
}

// readNumber reads a file with one number. It returns 0 if that fails.
func readNumber(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// swap reports whether swap can be limited in a cgroup.
func (h *hierarchy) swap(group string) bool {
	name := "memory.memsw.limit_in_bytes"
	if h.v2 {
		name = "memory.swap.max"
	}
	_, err := os.Stat(filepath.Join(h.dir("memory", group), name))
	return err == nil
}

// manager returns the manager of one cgroup, from the library opencontainers/cgroups. The manager leaves devices to the runtime.
func (h *hierarchy) manager(group string, r *cgroups.Resources, systemd bool) (cgroups.Manager, error) {
	r.SkipDevices, r.SkipFreezeOnSet = true, true
	config := &cgroups.Cgroup{Resources: r, Systemd: systemd, Path: group}
	paths := h.dirs(group)
	if systemd {
		config.Name, config.Path = filepath.Base(group), ""
		config.Parent = filepath.Base(filepath.Dir(group))
		if config.Parent == "/" {
			config.Parent = "-" + slice
		}
		paths = nil
	}
	m, err := manager.NewWithPaths(config, paths)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", group, err)
	}
	return m, nil
}

// tasks returns the processes of a cgroup and of all cgroups below it, in every hierarchy.
func (h *hierarchy) tasks(group string) ([]int, error) {
	seen := map[int]bool{}
	for _, dir := range h.dirs(group) {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the cgroup was removed, or never existed
			}
			if err != nil || !d.IsDir() {
				return err
			}
			pids, err := cgroups.GetPids(p)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup: the one above it lists its processes
				return nil
			}
			for _, pid := range pids {
				seen[pid] = true
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read processes of cgroup %s: %w", group, err)
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// kill sends SIGKILL to every process of a cgroup and waits up to a second for their end. If a process remains it returns
// ErrBusy.
func (h *hierarchy) kill(ctx context.Context, group string) error {
	return (&killing{
		tasks: func() ([]int, error) { return h.tasks(group) },
		all:   func() (bool, error) { return h.killAll(group) },
		one:   func(pid int) error { return h.killTask(group, pid) },
	}).run(ctx)
}

// killing has the steps of kill. all kills every process at once, unless the kernel cannot do that (false).
type killing struct {
	tasks func() ([]int, error)
	all   func() (bool, error)
	one   func(pid int) error
}

// run kills the processes until none is left. If the kernel fails to kill all at once, each gets a signal.
func (k *killing) run(ctx context.Context) error {
	const tries, pause = 20, 50 * time.Millisecond
	var failed error // why the kernel did not kill all at once
	for try := 0; ; try++ {
		pids, err := k.tasks()
		if err != nil || len(pids) == 0 {
			return err
		}
		if try == tries {
			return errors.Join(fmt.Errorf("%w: pids %v", ErrBusy, pids[:min(len(pids), 8)]), failed)
		}
		var all bool
		all, failed = k.all()
		for i := 0; !all && i < len(pids); i++ {
			if err := k.one(pids[i]); err != nil {
				return errors.Join(err, failed)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// killAll makes the kernel kill all processes of a v2 cgroup and of the cgroups below it at once, so that processes which start others cannot outrun
// the agent (cgroup.kill, since Linux 5.14). It returns false if the kernel cannot do that.
func (h *hierarchy) killAll(group string) (bool, error) {
	if !h.v2 {
		return false, nil
	}
	f, err := os.OpenFile(filepath.Join(h.dir("", group), "cgroup.kill"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) { // an older kernel; or the cgroup has gone, which the caller finds out
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("kill processes of cgroup %s: %w", group, err)
	}
	_, err = f.WriteString("1")
	if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, unix.ENODEV) { // ENODEV: the cgroup has gone since
		return false, fmt.Errorf("kill processes of cgroup %s: %w", group, err)
	}
	return err == nil, nil
}

// killTask kills a process if it is still in the cgroup. It opens a descriptor of the process (pidfd) before the check, because another
// process may have got the same process ID in the meantime.
func (h *hierarchy) killTask(group string, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ignoreGone(pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	pids, err := h.tasks(group)
	if err != nil || !slices.Contains(pids, pid) {
		return err
	}
	return ignoreGone(pid, unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}

func ignoreGone(pid int, err error) error {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("kill process %d: %w", pid, err)
}
