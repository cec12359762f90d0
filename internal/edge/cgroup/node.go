package cgroup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// SetUpNode creates the cgroups above pods and limits them. capacity is the machine's (cpu, memory, hugepages-*, and "pid" for
// processes). If Enforce contains "pods", the limit of all pods together is capacity minus the reservations. The error
// ErrNotEnforced means that the cgroups exist and can be used, but that some limits could not be set.
func (c *Cgroups) SetUpNode(ctx context.Context, capacity v1.ResourceList) error {
	if err := c.check(); err != nil {
		return err
	}
	h, err := c.hierarchy()
	if err != nil {
		return err
	}
	if !c.config.PerQOS {
		if c.enforces("pods") {
			return errors.New("enforceNodeAllocatable \"pods\" needs cgroupsPerQOS: true")
		}
		return nil
	}
	if root := c.names.path(); root != "/" {
		ok, err := h.exists(root)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("cgroupRoot %q does not exist (%s): create it before the node starts", c.config.Root, h.dir("cpu", root))
		}
	}
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.create(ctx, h, c.names.qos(class)); err != nil {
			return err
		}
	}
	return c.limitNode(ctx, h, capacity)
}

// limitNode sets as many of the limits as possible, and returns the joined errors of the limits that it could not set.
func (c *Cgroups) limitNode(ctx context.Context, h *hierarchy, capacity v1.ResourceList) error {
	least := int64(crispec.MinShares)
	errs := []error{
		c.set(ctx, h, c.names.qos(v1.PodQOSGuaranteed), c.podsLimits(capacity)),
		c.set(ctx, h, c.names.qos(v1.PodQOSBestEffort), Limits{CPUShares: &least}),
	}
	for _, r := range []struct {
		what, group string
		list        v1.ResourceList
	}{
		{"system-reserved", c.config.SystemReservedCgroup, c.config.SystemReserved},
		{"kube-reserved", c.config.KubeReservedCgroup, c.config.KubeReserved},
	} {
		full, compressible := c.enforces(r.what), c.enforces(r.what+"-compressible")
		if full || compressible {
			errs = append(errs, c.reserve(ctx, h, r.what, r.group, listLimits(r.list, !full)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrNotEnforced, err)
	}
	return nil
}

// podsLimits returns the limits for the cgroup of all pods. Without a reservation of processes their number has no limit, so that an
// administrator may raise the machine's own limit later.
func (c *Cgroups) podsLimits(capacity v1.ResourceList) Limits {
	none := int64(unlimited)
	if !c.enforces("pods") {
		l := listLimits(capacity, false)
		l.Pids = &none
		return l
	}
	l := listLimits(c.Allocatable(capacity), false)
	_, system := c.config.SystemReserved[resourcePIDs]
	if _, kube := c.config.KubeReserved[resourcePIDs]; !system && !kube {
		l.Pids = &none
	}
	return l
}

// reserve sets the limits of the cgroup of a reservation (system-reserved or kube-reserved). Another program has created this cgroup.
func (c *Cgroups) reserve(ctx context.Context, h *hierarchy, what, group string, l Limits) error {
	if group == "" {
		return fmt.Errorf("enforceNodeAllocatable %s: set the name of its cgroup (systemReservedCgroup or kubeReservedCgroup)", what)
	}
	group = c.names.existing(group)
	ok, err := h.exists(group)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("enforceNodeAllocatable %s: cgroup %s does not exist", what, group)
	}
	if c.config.MemoryQoS {
		l.MemoryMin = l.Memory
	}
	return c.set(ctx, h, group, l)
}

// Allocatable returns a capacity minus the reservations, never below zero. Huge pages are not ordinary memory, so memory is also reduced by
// them: the memory controller does not count them. (The node also subtracts the hard eviction thresholds from the allocatable resources that
// it reports.)
func (c *Cgroups) Allocatable(capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range capacity {
		q = q.DeepCopy()
		for _, reserved := range []v1.ResourceList{c.config.SystemReserved, c.config.KubeReserved} {
			if r, ok := reserved[name]; ok {
				q.Sub(r)
			}
		}
		out[name] = positive(q)
	}
	if memory, ok := out[v1.ResourceMemory]; ok {
		for name, q := range out {
			if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
				memory.Sub(q)
			}
		}
		out[v1.ResourceMemory] = positive(memory)
	}
	return out
}

func positive(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

// classLimits is what the cgroups above pods get for all pods together. It is comparable.
type classLimits struct {
	shares  int64 // CPU shares of the burstable class; never 0
	protect bool  // the next two are set
	// guaranteed and burstable are the bytes that the kernel keeps for the pods of these classes.
	guaranteed, burstable int64
}

// classLimits returns what the cgroups above pods get for these pods.
func (c *Cgroups) classLimits(pods []*v1.Pod, v2 bool) classLimits {
	var milli int64
	l := classLimits{protect: v2 && c.config.MemoryQoS}
	for _, p := range pods {
		class := crispec.QOS(p)
		if class != v1.PodQOSBurstable && !l.protect {
			continue
		}
		requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		if class == v1.PodQOSBurstable {
			milli += requests.Cpu().MilliValue()
		}
		if l.protect {
			least, low := c.config.kept(class, requests.Memory().Value())
			l.guaranteed, l.burstable = l.guaranteed+least, l.burstable+low
		}
	}
	l.shares = crispec.CPUShares(milli)
	return l
}

// UpdateQOS sets the weight of the burstable class to the sum of its pods' CPU requests. With MemoryQoS on cgroup v2 it also sets the memory
// that the kernel keeps for the classes. Call it when the set of pods or a request has changed, one call at a time. It writes only if
// something has changed. It holds no lock while it waits for systemd, so EnsurePod does not wait for it.
func (c *Cgroups) UpdateQOS(ctx context.Context, pods []*v1.Pod) error {
	if !c.config.PerQOS {
		return nil
	}
	h, err := c.hierarchy()
	if err != nil {
		return err
	}
	want := c.classLimits(pods, h.v2)
	if c.swapClasses(classLimits{}, want) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Until the writes succeed, the limits count as unknown: a call that timed out may still take effect.
	burstable := Limits{CPUShares: &want.shares}
	if want.protect {
		// A cgroup gets no more of what the kernel keeps than its parent, so the cgroup of all pods has the sums of both classes. Upstream's
		// kubelet gives it no memory.low, so that there the kernel keeps nothing for burstable pods.
		sum := want.guaranteed + want.burstable
		all := Limits{MemoryMin: &sum, MemoryLow: &want.burstable}
		if err := c.apply(ctx, h, c.names.qos(v1.PodQOSGuaranteed), all.resources(h.v2, nil)); err != nil {
			return err
		}
		burstable.MemoryLow = &want.burstable
	}
	if err := c.apply(ctx, h, c.names.qos(v1.PodQOSBurstable), burstable.resources(h.v2, nil)); err != nil {
		return err
	}
	c.swapClasses(want, want)
	return nil
}

// MemoryKept returns how many bytes the kernel keeps for guaranteed and for burstable pods, as the last UpdateQOS has set it.
func (c *Cgroups) MemoryKept() (guaranteed, burstable int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[0], c.kept[1]
}

// swapClasses reports whether the stored limits of the classes are equal to want. If they are not, it replaces them by the argument to (zero:
// unknown).
func (c *Cgroups) swapClasses(to, want classLimits) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.classes == want {
		return true
	}
	if c.classes = to; to == want {
		c.kept = [2]int64{to.guaranteed, to.burstable}
	}
	return false
}
