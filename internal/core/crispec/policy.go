package crispec

import "time"

// DefaultCPUPeriod is the CFS period if the configuration names none.
const DefaultCPUPeriod = 100 * time.Millisecond

// Policy is the part of all inputs that does not come from the pod: configuration and facts of the machine, as values.
type Policy struct {
	// CPUCFSQuota is KubeletConfiguration.cpuCFSQuota: CPU limits become CFS quotas.
	CPUCFSQuota bool
	// CPUCFSPeriod is KubeletConfiguration.cpuCFSQuotaPeriod; zero means DefaultCPUPeriod.
	CPUCFSPeriod time.Duration
	// SeccompDefault is KubeletConfiguration.seccompDefault: a pod without a profile gets RuntimeDefault instead of
	// Unconfined.
	SeccompDefault bool
	// SeccompRoot is the directory of Localhost profiles: <root-dir>/seccomp.
	SeccompRoot string
	// CgroupV2 is set on a machine with the unified hierarchy.
	CgroupV2 bool
	// SingleProcessOOMKill is KubeletConfiguration.singleProcessOOMKill. If it is false on cgroup v2, the kernel kills
	// all processes of a container together (memory.oom.group).
	SingleProcessOOMKill bool
	// MemoryCapacity is the machine's memory in bytes; oom_score_adj of burstable pods depends on it.
	MemoryCapacity int64
	// SwapCapacity is the machine's swap in bytes. SwapController says whether swap can be limited per cgroup. LimitedSwap is set if
	// memorySwap.swapBehavior is LimitedSwap; any other value means NoSwap.
	SwapCapacity   int64
	SwapController bool
	LimitedSwap    bool
	// MemoryThrottling is KubeletConfiguration.memoryThrottlingFactor with the feature gate MemoryQoS; 0 without it. It and the next
	// two have an effect only with CgroupV2.
	MemoryThrottling float64
	// MemoryReservation is set if memoryReservationPolicy is TieredReservation: the kernel keeps the requested memory for containers.
	MemoryReservation bool
	// MemoryAllocatable is the memory of all pods of the node, in bytes; 0: not known.
	MemoryAllocatable int64
	// HugePageSizes are the page sizes of the machine, named as in the kernel's cgroup files: 2MB, 1GB.
	HugePageSizes []string
	// MaskedPaths are paths of this machine that are masked in addition to the fixed ones (thermal_throttle of each
	// CPU).
	MaskedPaths []string
	// ClusterDomain is KubeletConfiguration.clusterDomain.
	ClusterDomain string
}

// DefaultPolicy has the values that KubeletConfiguration documents as defaults. Facts of the machine are zero.
func DefaultPolicy() Policy {
	return Policy{
		CPUCFSQuota: true, CPUCFSPeriod: DefaultCPUPeriod,
		SeccompRoot: "/var/lib/kubelet/seccomp", ClusterDomain: "cluster.local",
	}
}

func (p *Policy) period() int64 {
	if p.CPUCFSPeriod < time.Microsecond {
		return DefaultCPUPeriod.Microseconds()
	}
	return p.CPUCFSPeriod.Microseconds()
}
