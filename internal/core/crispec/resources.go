package crispec

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// The kernel's bounds of CPU shares, and the smallest CFS quota in microseconds.
const (
	MinShares = 2
	maxShares = 262144
	minQuota  = 1000
)

// CPUShares returns the cgroup v1 CPU shares for a request of milli thousandths of a CPU: 1024 per CPU, within the kernel's bounds.
func CPUShares(milli int64) int64 {
	switch {
	case milli <= 0:
		return MinShares
	case milli >= maxShares:
		return maxShares // the shares of so large a request are above the bound in any case
	}
	return min(max(milli*1024/1000, MinShares), maxShares)
}

// CPUQuota returns the CFS quota for a limit of milli thousandths of a CPU. period and the quota are in microseconds. A quota of 0 means
// that there is no limit.
func CPUQuota(milli, period int64) int64 {
	if milli <= 0 {
		return 0
	}
	const most = 1 << 40 // a billion cores: beyond it the product would overflow
	return max(min(milli, most)*min(period, 1_000_000)/1000, minQuota)
}

// limitOf returns a container's limit, or else the pod's ("when the container-level limit is not set, the pod-level
// limit is used").
func limitOf(p *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	q := c.Resources.Limits[name]
	if q.IsZero() && p.Spec.Resources != nil {
		q = p.Spec.Resources.Limits[name]
	}
	return q
}

// ContainerResources returns the cgroup settings of one container, for its creation and for UpdateContainerResources at
// an in-place resize.
func ContainerResources(p *v1.Pod, c *v1.Container, policy *Policy) *runtimeapi.LinuxContainerResources {
	cpuLimit, memoryLimit := limitOf(p, c, v1.ResourceCPU), limitOf(p, c, v1.ResourceMemory)
	request, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		request = cpuLimit
	}
	r := policy.cgroup(request.MilliValue(), cpuLimit.MilliValue(), memoryLimit.Value())
	r.OomScoreAdj = OOMScoreAdj(p, c, policy.MemoryCapacity)
	r.HugepageLimits = hugepages(p, c, policy.HugePageSizes)
	policy.swap(r, p, c)
	policy.memoryQoS(r, p, c)
	return r
}

func (p *Policy) cgroup(request, limit, memory int64) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{CpuShares: CPUShares(request)}
	if memory > 0 {
		r.MemoryLimitInBytes = memory
	}
	if p.CPUCFSQuota {
		r.CpuPeriod = p.period()
		r.CpuQuota = CPUQuota(limit, r.CpuPeriod)
	}
	if p.CgroupV2 && !p.SingleProcessOOMKill {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// swap limits the swap of a container. With LimitedSwap on cgroup v2, a container of a burstable pod that is not critical gets
// swap in proportion to its memory request, unless the request equals the limit. All other containers get no swap. On cgroup v1, swap is
// limited only for a container that has a memory limit. If the machine cannot limit swap, this function changes nothing.
func (p *Policy) swap(r *runtimeapi.LinuxContainerResources, pod *v1.Pod, c *v1.Container) {
	if !p.SwapController {
		return
	}
	if !p.CgroupV2 {
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes // this limits the sum of memory and swap, so no swap is left
		return
	}
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	var bytes int64
	if p.LimitedSwap && !IsCritical(pod) && QOS(pod) == v1.PodQOSBurstable && request.Cmp(*limit) != 0 &&
		p.MemoryCapacity > 0 && request.Value() > 0 && request.Value() <= p.MemoryCapacity {
		bytes = int64(float64(request.Value()) / float64(p.MemoryCapacity) * float64(p.SwapCapacity))
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	r.Unified["memory.swap.max"] = strconv.FormatInt(bytes, 10)
}

// memoryPage is the unit of memory.high. A kernel with larger pages rounds the value down itself.
const memoryPage = 4096

// memoryQoS sets what the feature gate MemoryQoS is about (https://kep.k8s.io/2570). If a container may use more memory than it requests,
// the kernel throttles it above memory.high, which lies between its request and its limit (or the memory of all pods, if it has no limit).
// With MemoryReservation the kernel keeps the requested memory: always for a guaranteed pod (memory.min), and as long as it can for a
// burstable pod (memory.low).
func (p *Policy) memoryQoS(r *runtimeapi.LinuxContainerResources, pod *v1.Pod, c *v1.Container) {
	if p.MemoryThrottling <= 0 || !p.CgroupV2 {
		return
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	switch guaranteed := QOS(pod) == v1.PodQOSGuaranteed; {
	case request <= 0 || !p.MemoryReservation: // a container that is resized may have had a reservation before
		r.Unified["memory.min"], r.Unified["memory.low"] = "0", "0"
	case guaranteed:
		r.Unified["memory.min"] = strconv.FormatInt(request, 10)
	default:
		r.Unified["memory.low"] = strconv.FormatInt(request, 10)
	}
	r.Unified["memory.high"] = "max" // a container that is resized may have had a lower value before
	most := limit
	if most == 0 {
		most = p.MemoryAllocatable
	}
	if request == limit || most <= 0 {
		return
	}
	high := int64((float64(request)+float64(most-request)*p.MemoryThrottling)/memoryPage) * memoryPage
	if high > request {
		r.Unified["memory.high"] = strconv.FormatInt(high, 10)
	}
}

// hugepages returns a limit for every page size of the machine: the container's limit, or else the pod's, or else zero.
func hugepages(p *v1.Pod, c *v1.Container, sizes []string) []*runtimeapi.HugepageLimit {
	limits := map[string]uint64{}
	read := func(list v1.ResourceList) {
		for name, q := range list {
			if size, ok := HugePageSize(name); ok && q.Value() >= 0 {
				limits[size] = uint64(q.Value())
			}
		}
	}
	if p.Spec.Resources != nil {
		read(p.Spec.Resources.Limits)
	}
	read(c.Resources.Limits)
	var out []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: limits[size]})
	}
	return out
}

// HugePageSize returns the kernel's name (2MB, 1GB) for the page size of a resource hugepages-<size>.
func HugePageSize(name v1.ResourceName) (string, bool) {
	const prefix = v1.ResourceHugePagesPrefix
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return "", false
	}
	q, err := strict.ParseQuantity(string(name[len(prefix):]))
	if err != nil {
		return "", false
	}
	n := q.Value()
	if n <= 0 || n&(n-1) != 0 {
		return "", false // every page size is a power of two
	}
	units := [...]string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i], true
}

// SandboxResources returns the sums of the pod's containers, and the overhead of its runtime class. A runtime needs
// them if it sizes a virtual machine when it makes the sandbox.
func SandboxResources(p *v1.Pod, policy *Policy) (resources, overhead *runtimeapi.LinuxContainerResources) {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resourcehelper.PodRequests(p, options), resourcehelper.PodLimits(p, options)
	request, ok := requests[v1.ResourceCPU]
	if !ok {
		request = *limits.Cpu()
	}
	resources = policy.cgroup(request.MilliValue(), limits.Cpu().MilliValue(), limits.Memory().Value())
	overhead = &runtimeapi.LinuxContainerResources{}
	if o := p.Spec.Overhead; o != nil {
		overhead = policy.cgroup(o.Cpu().MilliValue(), o.Cpu().MilliValue(), o.Memory().Value())
	}
	return resources, overhead
}
