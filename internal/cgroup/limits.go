package cgroup

import (
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/crispec"
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

// PodLimits are the limits of a pod's group. A burstable pod is limited where all of its containers are, or the
// pod itself is; a best-effort pod has the least weight and no limit.
func PodLimits(p *v1.Pod, config *Config) Limits {
	var l Limits
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	cpuLimited, memoryLimited := true, true
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{
		ContainerFn: func(r v1.ResourceList, _ resourcehelper.ContainerType) {
			cpuLimited = cpuLimited && !r.Cpu().IsZero()
			memoryLimited = memoryLimited && !r.Memory().IsZero()
		},
	})
	if p.Spec.Resources != nil {
		cpuLimited = cpuLimited || !p.Spec.Resources.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !p.Spec.Resources.Limits.Memory().IsZero()
	}
	period := int64(config.CPUCFSPeriod / time.Microsecond)
	if period <= 0 {
		period = crispec.DefaultCPUPeriod.Microseconds()
	}
	// What is not limited is said too: the group may exist from before a resize.
	shares, quota, memory := crispec.CPUShares(requests.Cpu().MilliValue()), int64(unlimited), int64(unlimited)
	switch class := crispec.QOS(p); class {
	case v1.PodQOSBestEffort:
		shares = crispec.MinShares
	default:
		whole := class == v1.PodQOSGuaranteed
		if milli := limits.Cpu().MilliValue(); config.CPUCFSQuota && milli > 0 && (whole || cpuLimited) {
			quota = crispec.CPUQuota(milli, period)
		}
		if bytes := limits.Memory().Value(); bytes > 0 && (whole || memoryLimited) {
			memory = bytes
		}
	}
	l.CPUShares, l.CPUQuota, l.CPUPeriod, l.Memory = &shares, &quota, &period, &memory
	if config.PodPidsLimit > 0 {
		pids := config.PodPidsLimit
		l.Pids = &pids
	}
	l.HugePages = hugePages(requests)
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
