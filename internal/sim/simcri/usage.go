package simcri

import (
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These constants bound what annotations may ask for, so that sums over many containers do not overflow.
const (
	maxAmount = 1 << 50 // bytes
	maxCores  = 1e6
	// maxCoreSeconds fits into nanoseconds.
	maxCoreSeconds = 9e9
)

// amount returns the value of an annotation that is a number of bytes, or the argument without if the pod has no such annotation.
func (c *container) amount(name string, without uint64) uint64 {
	if v, ok := c.note(name); ok {
		if n, err := parseAmount(v); err == nil {
			return n
		}
	}
	return without
}

// ran returns for how long a container has run.
func (c *container) ran(now time.Time) time.Duration {
	switch {
	case c.started == 0:
		return 0
	case c.finished != 0:
		return time.Duration(c.finished - c.started)
	}
	return now.Sub(time.Unix(0, c.started))
}

// grown returns an amount that grows while the container runs. base is the name of the annotation with the initial amount (default:
// without), and grows is the name of the annotation with the increase per second.
func (c *container) grown(base, grows string, without uint64, now time.Time) uint64 {
	grown := min(float64(c.amount(grows, 0))*c.ran(now).Seconds(), maxAmount)
	return min(c.amount(base, without)+uint64(grown), maxAmount)
}

// layer returns the size of the container's writable layer in bytes. After the container has ended, the size no longer changes.
func (c *container) layer(now time.Time) uint64 {
	if c.do != nil && c.do.Disk != nil && !c.noted(AnnotationDisk, AnnotationDiskGrows) {
		return uint64(c.do.Disk.At(c.ran(now), c.seed()))
	}
	return c.grown(AnnotationDisk, AnnotationDiskGrows, 8<<10, now)
}

// Used returns the resources of the simulated machine that are in use: the memory of running containers and the disk space of
// images and writable layers, also of those whose files are not deleted yet, in bytes, and the number of processes.
func (r *Runtime) Used() (memory, disk, processes int64) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			_, bytes := c.usage(now)
			memory += int64(bytes)
			processes++
		}
		disk += int64(c.layer(now))
	}
	for _, i := range r.images {
		disk += int64(i.size)
	}
	disk += r.undeleted(now)
	return memory, disk, processes
}

// These are the least that a running container uses, because its process has been started and has a stack. metrics-server takes a 0 for a
// measurement that failed, and then drops the whole pod.
const (
	leastCPUTime = uint64(time.Millisecond)
	leastMemory  = 4096 // bytes
)

// spent is the CPU time that a container has used until a moment of its life. It is added up piece by piece, because the limit may change.
type spent struct {
	until   time.Duration // since its start
	seconds float64       // core-seconds
}

// usage returns the simulated usage of a container: cores and bytes. The caller holds the lock.
func (c *container) usage(now time.Time) (cores float64, memory uint64) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return 0, 0
	}
	memory = c.grown(AnnotationMemory, AnnotationMemoryGrows, 10<<20, now)
	if c.do != nil && c.do.Memory != nil && !c.noted(AnnotationMemory, AnnotationMemoryGrows) {
		memory = uint64(c.do.Memory.At(c.ran(now), c.seed()))
	}
	cores, varies := c.cores()
	if varies {
		cores = c.do.CPU.At(c.ran(now), c.seed())
	}
	return min(cores, c.cpuLimit()), max(memory, leastMemory)
}

// cores returns how many cores a container would use without a limit; varies: a rule says it, and it may change over time.
func (c *container) cores() (cores float64, varies bool) {
	if v, ok := c.note(AnnotationCPU); ok {
		if f, err := parseCores(v); err == nil {
			return f, false
		}
	}
	return 0.001, c.do != nil && c.do.CPU != nil
}

// cpuLimit returns the CPU limit of a container in cores. Without a limit it is infinite.
func (c *container) cpuLimit() float64 {
	if quota, period := c.resources.GetCpuQuota(), c.resources.GetCpuPeriod(); quota > 0 && period > 0 {
		return float64(quota) / float64(period)
	}
	return math.Inf(1)
}

// account adds up the CPU time of a container until now, with its present limit. The caller holds the lock.
func (c *container) account(now time.Time) {
	ran := c.ran(now)
	if ran <= c.cpu.until {
		return
	}
	if cores, varies := c.cores(); varies {
		c.cpu.seconds += c.do.CPU.Throttled(c.cpu.until, ran, c.cpuLimit(), c.seed())
	} else {
		c.cpu.seconds += min(cores, c.cpuLimit()) * (ran - c.cpu.until).Seconds()
	}
	c.cpu.until = ran
}

// cpuTime returns the CPU time that a container has used, in nanoseconds. It never falls. The caller holds the lock.
func (c *container) cpuTime(now time.Time) uint64 {
	if c.started == 0 {
		return 0
	}
	c.account(now)
	return max(uint64(min(c.cpu.seconds, maxCoreSeconds)*1e9), leastCPUTime)
}

func u64(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// stats returns the usage of a container. The caller holds the lock.
func (r *Runtime) stats(c *container, now time.Time) *runtimeapi.ContainerStats {
	cores, memory := c.usage(now)
	at := now.UnixNano()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.meta, Labels: c.labels.asMap(), Annotations: c.annotations.asMap()},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp: at, UsageCoreNanoSeconds: u64(c.cpuTime(now)), UsageNanoCores: u64(uint64(cores * 1e9)),
		},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: at, WorkingSetBytes: u64(memory), UsageBytes: u64(memory), RssBytes: u64(memory / 2),
			AvailableBytes: u64(available(c, memory)), PageFaults: u64(0), MajorPageFaults: u64(0),
		},
		WritableLayer: r.writable(c, now),
	}
}

// available returns how much of the memory limit is left; 0 without a limit.
func available(c *container, memory uint64) uint64 {
	if limit := c.resources.GetMemoryLimitInBytes(); limit > 0 && uint64(limit) > memory {
		return uint64(limit) - memory
	}
	return 0
}

// podStats returns the usage of a sandbox. Its CPU time includes that of containers that have ended or are removed. The caller holds the lock.
func (r *Runtime) podStats(s *sandbox, now time.Time) *runtimeapi.PodSandboxStats {
	linux := &runtimeapi.LinuxPodSandboxStats{
		Network: &runtimeapi.NetworkUsage{Timestamp: now.UnixNano(), DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: u64(0), TxBytes: u64(0), RxErrors: u64(0), TxErrors: u64(0),
		}},
		Process: &runtimeapi.ProcessUsage{Timestamp: now.UnixNano()},
	}
	core := s.removed
	var nano, memory, processes uint64
	for _, c := range s.containers {
		core += c.cpuTime(now)
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		st := r.stats(c, now)
		linux.Containers = append(linux.Containers, st)
		nano += st.Cpu.UsageNanoCores.Value
		memory += st.Memory.WorkingSetBytes.Value
		processes++
	}
	linux.Cpu = &runtimeapi.CpuUsage{Timestamp: now.UnixNano(), UsageCoreNanoSeconds: u64(core), UsageNanoCores: u64(nano)}
	linux.Memory = &runtimeapi.MemoryUsage{Timestamp: now.UnixNano(), WorkingSetBytes: u64(memory), UsageBytes: u64(memory)}
	linux.Process.ProcessCount = u64(processes + 1)
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: s.id, Metadata: s.meta, Labels: s.labels.asMap(), Annotations: s.annotations.asMap()},
		Linux:      linux,
	}
}
