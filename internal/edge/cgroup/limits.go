package cgroup

import (
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// unlimited is the value in the kernel's files for no limit.
const unlimited = -1

// resourcePIDs is the number of processes in a capacity or reservation.
const resourcePIDs v1.ResourceName = "pid"

// Limits are the limits of one cgroup. If a pointer is nil, the current limit of the cgroup stays.
type Limits struct {
	CPUShares *int64
	CPUQuota  *int64 // microseconds per period; -1: unlimited
	CPUPeriod *int64 // microseconds
	Memory    *int64 // bytes; -1: unlimited
	// MemoryMin and MemoryLow are the bytes that the kernel keeps for the cgroup: always, and as long as it can. They exist on cgroup v2.
	MemoryMin, MemoryLow *int64
	Pids                 *int64
	HugePages            map[string]int64 // bytes by page size, for example 2MB
}

// PodLimits returns the limits for a pod's cgroup of the given size. It also sets unlimited values, because the cgroup may have
// limits from before a resize.
func PodLimits(p *v1.Pod, size pod.Size, config *Config) Limits {
	var l Limits
	period := int64(config.CPUCFSPeriod / time.Microsecond)
	if period <= 0 {
		period = crispec.DefaultCPUPeriod.Microseconds()
	}
	shares, quota, memory := crispec.CPUShares(size.CPURequest), int64(unlimited), int64(unlimited)
	if config.CPUCFSQuota && size.CPULimit > 0 {
		quota = crispec.CPUQuota(size.CPULimit, period)
	}
	if size.MemoryLimit > 0 {
		memory = size.MemoryLimit
	}
	l.CPUShares, l.CPUQuota, l.CPUPeriod, l.Memory = &shares, &quota, &period, &memory
	if config.PodPidsLimit > 0 {
		pids := config.PodPidsLimit
		l.Pids = &pids
	}
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	l.HugePages = hugePages(requests)
	if config.MemoryQoS {
		least, low := config.kept(crispec.QOS(p), requests.Memory().Value())
		l.MemoryMin, l.MemoryLow = &least, &low
	}
	return l
}

// kept returns the bytes that the kernel keeps for pods of a QoS class which request that much memory: always (memory.min), and as long as it
// can (memory.low).
func (c *Config) kept(class v1.PodQOSClass, request int64) (least, low int64) {
	switch {
	case !c.ReserveMemory || request <= 0:
		return 0, 0
	case class == v1.PodQOSGuaranteed:
		return request, 0
	}
	return 0, request
}

func hugePages(list v1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for name, q := range list {
		if size, ok := crispec.HugePageSize(name); ok {
			out[size] = q.Value()
		}
	}
	return out
}

// listLimits returns the limits for a cgroup that may use the listed resources. If compressible is true, it returns only the limit of
// the CPU.
func listLimits(list v1.ResourceList, compressible bool) Limits {
	var l Limits
	if q, ok := list[v1.ResourceCPU]; ok {
		shares := crispec.CPUShares(q.MilliValue())
		l.CPUShares = &shares
	}
	if compressible {
		return l
	}
	if q, ok := list[v1.ResourceMemory]; ok {
		if memory := q.Value(); memory > 0 {
			l.Memory = &memory
		}
	}
	if q, ok := list[resourcePIDs]; ok {
		if pids := q.Value(); pids > 0 {
			l.Pids = &pids
		}
	}
	l.HugePages = hugePages(list)
	return l
}

// resources converts the limits to the type of the library opencontainers/cgroups. If HugePages is not nil, every page size of the
// machine that is missing in it gets the limit zero.
func (l Limits) resources(v2 bool, sizes []string) *cgroups.Resources {
	// On v2, a memory limit below the current usage would kill processes. With MemoryCheckBeforeUpdate, such a limit is an error.
	r := &cgroups.Resources{PidsLimit: l.Pids, MemoryCheckBeforeUpdate: v2}
	if l.CPUShares != nil {
		if v2 {
			r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(uint64(*l.CPUShares))
		} else {
			r.CpuShares = uint64(*l.CPUShares)
		}
	}
	if l.CPUQuota != nil {
		r.CpuQuota = *l.CPUQuota
	}
	if l.CPUPeriod != nil {
		r.CpuPeriod = uint64(*l.CPUPeriod)
	}
	if l.Memory != nil {
		r.Memory = *l.Memory
	}
	if v2 {
		for file, bytes := range map[string]*int64{"memory.min": l.MemoryMin, "memory.low": l.MemoryLow} {
			if bytes == nil {
				continue
			}
			if r.Unified == nil {
				r.Unified = map[string]string{}
			}
			r.Unified[file] = strconv.FormatInt(*bytes, 10)
		}
	}
	if l.HugePages != nil {
		for _, size := range sizes {
			r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: uint64(max(l.HugePages[size], 0))})
		}
	}
	return r
}
