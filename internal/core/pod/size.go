package pod

import (
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Size has the requests and limits of a container, or of a whole pod: CPU in thousandths, memory in bytes. A limit of zero means
// no limit.
type Size struct {
	CPURequest, CPULimit, MemoryRequest, MemoryLimit int64
}

// NamedSize is the size of one container, or of the whole pod if Name is empty.
type NamedSize struct {
	Name string
	Size Size
}

// String returns the form used in scripts and timelines, request and limit: cpu=100m/200m memory=64/128.
func (s Size) String() string {
	var b strings.Builder
	part := func(name string, request, limit int64, unit string) {
		if request == 0 && limit == 0 {
			return
		}
		fmt.Fprintf(&b, " %s=%d%s", name, request, unit)
		if limit != 0 {
			fmt.Fprintf(&b, "/%d%s", limit, unit)
		}
	}
	part("cpu", s.CPURequest, s.CPULimit, "m")
	part("memory", s.MemoryRequest, s.MemoryLimit, "")
	return strings.TrimPrefix(b.String(), " ")
}

// Grown returns a size with the larger value of s and o in each field; a limit of zero (no limit) is larger than any other. A pod's cgroup
// needs this size while its containers are resized from s to o.
func (s Size) Grown(o Size) Size {
	limit := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return 0
		}
		return max(a, b)
	}
	return Size{
		CPURequest: max(s.CPURequest, o.CPURequest), MemoryRequest: max(s.MemoryRequest, o.MemoryRequest),
		CPULimit: limit(s.CPULimit, o.CPULimit), MemoryLimit: limit(s.MemoryLimit, o.MemoryLimit),
	}
}

// Shrinks reports whether a change from s to o lowers any request or limit, or sets a limit where there was none.
func (s Size) Shrinks(o Size) bool { return o.Grown(s) != o }

// These are the smallest values that the kernel accepts, and the largest request, in thousandths of a CPU. If a smaller or larger value is
// set, the kernel reports these. The smallest limit is that of the default period, 100 ms.
const (
	leastCPURequest = 2
	leastCPULimit   = 10
	mostCPURequest  = 256_000
)

// Shown returns s with the values that a runtime reports for a container. Fields that the runtime does not report (zero) stay,
// and so do fields in which the difference is only the kernel's rounding or its bounds. leastLimit is Container.LeastCPULimit.
func (s Size) Shown(actual Size, leastLimit int64) Size {
	pick := func(want *int64, got, least int64) {
		if got == 0 || (*want <= least && got <= least) || (*want-got <= 1 && got-*want <= 1) {
			return // equal except for the rounding of the kernel
		}
		*want = got
	}
	if s.CPURequest < mostCPURequest || actual.CPURequest < mostCPURequest {
		pick(&s.CPURequest, actual.CPURequest, leastCPURequest)
	}
	pick(&s.CPULimit, actual.CPULimit, max(leastCPULimit, leastLimit))
	if actual.MemoryLimit != 0 {
		s.MemoryLimit = actual.MemoryLimit
	}
	return s
}

// Allocation has the resources that the node has accepted for a pod. Containers are started with them and resized to them, and
// status.allocatedResources shows them. An Allocation is never changed after it is made, so it may be shared.
type Allocation struct {
	Pod        *v1.ResourceRequirements `json:"pod,omitempty"` // spec.resources
	Containers []NamedResources         `json:"containers,omitempty"`
}

// NamedResources are the resources of one container.
type NamedResources struct {
	Name      string                  `json:"name"`
	Resources v1.ResourceRequirements `json:"resources"`
}

// AllocationOf returns the allocation of a pod for which the node has accepted all resources in the spec. It shares the pod's lists.
func AllocationOf(p *v1.Pod) *Allocation {
	a := &Allocation{Pod: p.Spec.Resources}
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if r := &list[i].Resources; len(r.Requests)+len(r.Limits) > 0 {
				a.Containers = append(a.Containers, NamedResources{Name: list[i].Name, Resources: *r})
			}
		}
	}
	return a
}

// AllocationFromStatus returns the allocation of a running pod from its API status. If the spec asks for more than the status shows,
// the node has not accepted the difference. It is for an agent that finds no checkpoint of the agent before it.
func AllocationFromStatus(p *v1.Pod) *Allocation {
	a := AllocationOf(p)
	use := func(r *v1.ResourceRequirements, allocated v1.ResourceList, actual *v1.ResourceRequirements) {
		if allocated == nil || sameList(allocated, r.Requests) {
			return
		}
		r.Requests = allocated
		if actual != nil {
			r.Limits = actual.Limits
		}
	}
	if a.Pod != nil {
		whole := *a.Pod
		use(&whole, p.Status.AllocatedResources, p.Status.Resources)
		a.Pod = &whole
	}
	for i := range a.Containers {
		c := &a.Containers[i]
		for st := range BaseStatuses(&p.Status) {
			if st.Name == c.Name {
				use(&c.Resources, st.AllocatedResources, st.Resources)
			}
		}
	}
	return a
}

// of returns the resources allocated to a container.
func (a *Allocation) of(name string) v1.ResourceRequirements {
	for i := range a.Containers {
		if a.Containers[i].Name == name {
			return a.Containers[i].Resources
		}
	}
	return v1.ResourceRequirements{}
}

// Covers reports whether the node has accepted all resources in a pod's spec.
func (a *Allocation) Covers(p *v1.Pod) bool {
	if !sameResources(a.Pod, p.Spec.Resources) {
		return false
	}
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if have := a.of(list[i].Name); !sameResources(&have, &list[i].Resources) {
				return false
			}
		}
	}
	return true
}

// sameResources compares requests and limits; claims are never resized.
func sameResources(a, b *v1.ResourceRequirements) bool {
	if a == nil {
		a = &v1.ResourceRequirements{}
	}
	if b == nil {
		b = &v1.ResourceRequirements{}
	}
	return sameList(a.Requests, b.Requests) && sameList(a.Limits, b.Limits)
}

func sameList(a, b v1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// Apply returns the pod with the resources that the node has accepted: p itself if these are the ones in its spec, otherwise a
// copy. A nil allocation means that all are accepted.
func (a *Allocation) Apply(p *v1.Pod) *v1.Pod {
	if a == nil || p == nil || a.Covers(p) {
		return p
	}
	out := *p
	out.Spec.Resources = a.Pod
	apply := func(in []v1.Container) []v1.Container {
		list := make([]v1.Container, len(in))
		copy(list, in)
		for i := range list {
			r := a.of(list[i].Name)
			list[i].Resources.Requests, list[i].Resources.Limits = r.Requests, r.Limits
		}
		return list
	}
	out.Spec.InitContainers, out.Spec.Containers = apply(p.Spec.InitContainers), apply(p.Spec.Containers)
	return &out
}
