package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// classes returns the quality of service classes. A pod's cgroup may be below any of them.
func classes() []v1.PodQOSClass {
	return []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
}

// Parent returns the cgroup of a pod in the form that the runtime expects in cgroup_parent.
func (c *Cgroups) Parent(p *v1.Pod) string {
	if !c.config.PerQOS {
		if len(c.names.root) == 0 {
			return ""
		}
		return c.names.path()
	}
	return c.names.pod(crispec.QOS(p), p.UID)
}

// EnsurePod creates a pod's cgroup if it does not exist, and sets its size, which crispec.PodSize computes. It returns the result of
// Parent.
//
// A resize calls EnsurePod twice: with the larger of the two sizes before the containers change, so that they can grow, and with the
// new size afterwards. On cgroup v1, the CPU quota of a cgroup cannot be smaller than that of a child. So the pod keeps a quota that
// is large enough for its containers until they shrink.
func (c *Cgroups) EnsurePod(ctx context.Context, p *v1.Pod, size pod.Size) (parent string, err error) {
	group := c.Parent(p)
	if !c.config.PerQOS {
		return group, nil
	}
	if !isName(p.UID) {
		return "", fmt.Errorf("make cgroup of pod %s/%s: metadata.uid %q cannot name a directory", p.Namespace, p.Name, p.UID)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	h, err := c.hierarchy()
	if err != nil {
		return "", err
	}
	if err := c.create(ctx, h, group); err != nil {
		return "", err
	}
	limits := c.podLimits(p, size)
	if q := *limits.CPUQuota; q != unlimited && !h.v2 {
		q = max(q, h.childQuota(group, *limits.CPUPeriod))
		limits.CPUQuota = &q
	}
	if err := c.set(ctx, h, group, limits); err != nil {
		return "", err
	}
	return group, nil
}

// isName reports whether a UID can be part of a directory name. A UID may come from a manifest that anybody wrote.
func isName(uid types.UID) bool {
	return uid != "" && len(uid) <= 200 && !strings.ContainsAny(string(uid), "/\x00\n") && !strings.Contains(string(uid), "..")
}

// create creates a cgroup for every controller. It is idempotent.
func (c *Cgroups) create(ctx context.Context, h *hierarchy, group string) error {
	began := time.Now()
	defer func() { c.config.Done("create", time.Since(began)) }()
	m, err := h.manager(group, &cgroups.Resources{}, c.names.systemd)
	if err != nil {
		return err
	}
	if err := c.answered(ctx, func() error { return m.Apply(-1) }); err != nil {
		return fmt.Errorf("make cgroup %s: %w", group, err)
	}
	if h.v2 {
		return nil
	}
	// The library creates no cgroup for the devices controller, and systemd creates none for controllers that it does not manage.
	// Create these cgroups too, because the runtime would create them later.
	for _, dir := range h.dirs(group) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup %s: %w", group, err)
		}
	}
	return nil
}

func (c *Cgroups) set(ctx context.Context, h *hierarchy, group string, l Limits) error {
	sizes := h.hugePageSizes()
	if len(sizes) == 0 && wantsHugePages(l) {
		c.warnHugePages(group)
	}
	return c.apply(ctx, h, group, h.change(group, l, sizes))
}

func (c *Cgroups) apply(ctx context.Context, h *hierarchy, group string, r *cgroups.Resources) error {
	began := time.Now()
	defer func() { c.config.Done("update", time.Since(began)) }()
	if !h.has("pids") {
		r.PidsLimit = nil
	}
	m, err := h.manager(group, r, c.names.systemd)
	if err != nil {
		return err
	}
	if err := c.answered(ctx, func() error { return m.Set(r) }); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", group, err)
	}
	return nil
}

func wantsHugePages(l Limits) bool {
	for _, n := range l.HugePages {
		if n > 0 {
			return true
		}
	}
	return false
}

func (c *Cgroups) warnHugePages(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.warned {
		c.warned = true
		c.config.Log.Warn("huge pages are not limited: the hugetlb cgroup controller is missing", "cgroup", group)
	}
}

// find returns the cgroups of a pod, in every class and in every hierarchy.
func (c *Cgroups) find(h *hierarchy, uid types.UID) []string {
	var out []string
	for _, class := range classes() {
		group := c.names.pod(class, uid)
		for _, dir := range h.dirs(group) {
			if _, err := os.Lstat(dir); err == nil {
				out = append(out, group)
				break
			}
		}
	}
	return out
}

// RemovePod removes a pod's cgroup and all cgroups below it, in every hierarchy. Call it when no container of the pod runs any more.
// Processes that remain, for example after an interrupted StartContainer, get SIGKILL. If one remains after that, RemovePod removes
// nothing and returns ErrBusy. A pod without a cgroup is no error.
func (c *Cgroups) RemovePod(ctx context.Context, uid types.UID) error {
	if !c.config.PerQOS || !isName(uid) {
		return nil
	}
	h, err := c.hierarchy()
	if err != nil {
		return err
	}
	for _, group := range c.find(h, uid) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.remove(ctx, h, group); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cgroups) remove(ctx context.Context, h *hierarchy, group string) error {
	began := time.Now()
	defer func() { c.config.Done("destroy", time.Since(began)) }()
	if err := h.kill(ctx, group); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", group, err)
	}
	if c.names.systemd {
		m, err := h.manager(group, &cgroups.Resources{}, true)
		if err != nil {
			return err
		}
		if err := c.answered(ctx, m.Destroy); err != nil {
			return fmt.Errorf("remove cgroup %s: %w", group, err)
		}
	}
	for _, dir := range h.dirs(group) {
		if err := cgroups.RemovePath(dir); err != nil {
			return fmt.Errorf("remove cgroup %s: %w", group, err)
		}
	}
	return nil
}

// PodCgroups returns the UIDs of the pods that have a cgroup in any hierarchy, sorted. A pod that no source has any more is an orphan.
func (c *Cgroups) PodCgroups() ([]types.UID, error) {
	if !c.config.PerQOS {
		return nil, nil
	}
	h, err := c.hierarchy()
	if err != nil {
		return nil, err
	}
	found := map[types.UID]bool{}
	for _, class := range classes() {
		for _, dir := range h.dirs(c.names.qos(class)) {
			entries, err := os.ReadDir(dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list pod cgroups: %w", err)
			}
			for _, e := range entries {
				if uid, ok := c.names.uid(class, e.Name()); ok && e.IsDir() {
					found[uid] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}
