package cgroup

import (
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// unlimited is what the kernel's files take for no limit.
const unlimited = -1

// Limits of one group. A nil pointer leaves what is set.
type Limits struct {
	CPUShares *int64
	CPUQuota  *int64 // microseconds per period; -1: unlimited
	CPUPeriod *int64 // microseconds
	Memory    *int64 // bytes; -1: unlimited
	Pids      *int64
	HugePages map[string]int64 // bytes by page size, 2MB
}

// PodLimits are the limits of a pod's group that is given a size. What is not limited is said too: the group may exist
// from before a resize.
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
	l.HugePages = hugePages(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))
	return l
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

// listLimits are the limits of a group that may use what a list says. Compressible: CPU alone.
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
	if q, ok := list["pid"]; ok {
		if pids := q.Value(); pids > 0 {
			l.Pids = &pids
		}
	}
	l.HugePages = hugePages(list)
	return l
}

// resources are the limits in the library's form. Of the machine's page sizes, those that HugePages does not name
// are limited to zero, when HugePages is not nil.
func (l Limits) resources(v2 bool, sizes []string) *cgroups.Resources {
	// On v2 a memory limit below what is in use would kill: it is an error instead.
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
	if l.HugePages != nil {
		for _, size := range sizes {
			r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: uint64(max(l.HugePages[size], 0))})
		}
	}
	return r
}
