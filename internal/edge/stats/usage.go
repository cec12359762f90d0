package stats

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// usage is one reading of a control group, from its files or from the runtime. A nil pointer means that a value was not measured.
type usage struct {
	at     time.Time
	cpu    *cpuUsage
	memory *memoryUsage
	swap   *swapUsage
	pids   *uint64
	psi    psiUsage
}

type cpuUsage struct {
	at                           time.Time
	nanos                        uint64
	user, system                 *uint64 // nanoseconds
	periods, throttled, throttle *uint64 // CFS periods, throttled periods, and nanoseconds of throttling
	bursts, burst                *uint64 // periods with a burst above the quota, and nanoseconds of bursts
	rate                         *uint64 // nanocores
}

type memoryUsage struct {
	at                                              time.Time
	usage, workingSet, available, rss               *uint64
	faults, majorFaults                             *uint64
	cache, mapped, kernel, active, inactive, failed *uint64
	peak                                            *uint64
	ownFaults, ownMajorFaults                       *uint64 // page faults of the group itself, without the groups below it
}

type swapUsage struct {
	at               time.Time
	usage, available *uint64
}

type psiUsage struct{ cpu, memory, io *psi }

type psi struct{ some, full stall }

type stall struct {
	avg10, avg60, avg300 float64
	nanos                uint64
}

// limits are the limits of a control group; nil: no limit, or not known.
type limits struct {
	shares                    uint64
	period, quota             uint64 // microseconds; a quota of zero means no limit
	memory, reservation, swap uint64 // bytes; zero means no limit
	threads                   *uint64
	hasCPU, hasMemory         bool
}

// fill copies from other each value that is not measured in u.
func (u *usage) fill(other usage) {
	if u.at.IsZero() {
		u.at = other.at
	}
	if u.cpu == nil {
		u.cpu = other.cpu
	}
	if u.memory == nil {
		u.memory = other.memory
	}
	if u.swap == nil {
		u.swap = other.swap
	}
	if u.pids == nil {
		u.pids = other.pids
	}
	if u.psi == (psiUsage{}) {
		u.psi = other.psi
	}
}

// add adds the usage c of a container to the usage u of its pod, if there is no measurement of the whole pod.
func (u *usage) add(c *usage) {
	if c.cpu != nil {
		if u.cpu == nil {
			u.cpu = &cpuUsage{at: c.cpu.at}
		}
		u.cpu.nanos += c.cpu.nanos
		u.cpu.rate = sum(u.cpu.rate, c.cpu.rate)
	}
	if c.memory != nil {
		if u.memory == nil {
			u.memory = &memoryUsage{at: c.memory.at}
		}
		u.memory.usage = sum(u.memory.usage, c.memory.usage)
		u.memory.workingSet = sum(u.memory.workingSet, c.memory.workingSet)
		u.memory.rss = sum(u.memory.rss, c.memory.rss)
		u.memory.faults = sum(u.memory.faults, c.memory.faults)
		u.memory.majorFaults = sum(u.memory.majorFaults, c.memory.majorFaults)
	}
	if c.swap != nil {
		if u.swap == nil {
			u.swap = &swapUsage{at: c.swap.at}
		}
		u.swap.usage = sum(u.swap.usage, c.swap.usage)
	}
}

func sum(a, b *uint64) *uint64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return ptr(*a + *b)
}

func ptr[T any](v T) *T { return &v }

func less(a, b uint64) uint64 { return a - min(a, b) }

// fromCRI converts the CRI statistics of a container or sandbox.
func fromCRI(cpu *runtimeapi.CpuUsage, memory *runtimeapi.MemoryUsage, swap *runtimeapi.SwapUsage, io *runtimeapi.IoUsage) usage {
	var u usage
	if cpu.GetUsageCoreNanoSeconds() != nil {
		u.cpu = &cpuUsage{at: stamp(cpu.Timestamp), nanos: cpu.UsageCoreNanoSeconds.Value, rate: value(cpu.UsageNanoCores)}
		u.psi.cpu = fromPSI(cpu.Psi)
	}
	if memory != nil {
		u.memory = &memoryUsage{
			at: stamp(memory.Timestamp), usage: value(memory.UsageBytes), workingSet: value(memory.WorkingSetBytes),
			available: value(memory.AvailableBytes), rss: value(memory.RssBytes),
			faults: value(memory.PageFaults), majorFaults: value(memory.MajorPageFaults),
		}
		if u.memory.available != nil && *u.memory.available == 0 { // the runtime reports 0 available bytes if there is no limit
			u.memory.available = nil
		}
		u.psi.memory = fromPSI(memory.Psi)
	}
	if swap != nil {
		u.swap = &swapUsage{at: stamp(swap.Timestamp), usage: value(swap.SwapUsageBytes), available: value(swap.SwapAvailableBytes)}
	}
	u.psi.io = fromPSI(io.GetPsi())
	if u.cpu != nil {
		u.at = u.cpu.at
	} else if u.memory != nil {
		u.at = u.memory.at
	}
	return u
}

func stamp(nanos int64) time.Time { return time.Unix(0, nanos) }

func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return ptr(v.Value)
}

func fromPSI(p *runtimeapi.PsiStats) *psi {
	if p == nil {
		return nil
	}
	one := func(d *runtimeapi.PsiData) stall {
		return stall{avg10: percent(d.GetAvg10()), avg60: percent(d.GetAvg60()), avg300: percent(d.GetAvg300()), nanos: d.GetTotal()}
	}
	return &psi{some: one(p.Some), full: one(p.Full)}
}

// percent returns v, or 0 if v is no percentage. A runtime may send any number, and JSON has no form for NaN and infinity.
func percent(v float64) float64 {
	if !(v >= 0 && v <= 100) {
		return 0
	}
	return v
}
