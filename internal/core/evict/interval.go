package evict

import (
	"cmp"
	"time"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

// These constants bound the time between two measurements of the signals.
const (
	shortest     = 250 * time.Millisecond
	shortestDisk = time.Second
	longest      = 10 * time.Second
	// nearest is the shortest time between two measurements of memory.
	nearest = 50 * time.Millisecond
)

// These constants are the highest rates per second at which a resource may be used up.
const (
	memoryRate = int64(2) << 30
	// burst is how fast an ordinary program fills memory. Near a threshold of memory, the time between two measurements depends on it: a
	// program that fills memory at this rate has taken at most 51 MiB of the reserve below the threshold when it is noticed, and one that
	// fills 100 MB/s at most 5 MB.
	burst     = int64(1) << 30
	diskRate  = int64(1) << 30
	inodeRate = int64(50_000)
	pidRate   = int64(20_000)
)

// Interval returns the time until the next measurement: the shortest time in which any threshold could be reached. A node that is far from
// its thresholds measures every 10 s. A shortage of memory is noticed within 50 ms if memory is not filled faster than burst; otherwise it is
// noticed within 250 ms, as a shortage of process IDs is. A shortage of disk space is noticed within 1 s.
//
// Why the node does not wait for a notification of the kernel instead: a threshold of memory.usage_in_bytes (cgroup v1) counts page cache. On a
// machine whose memory is full of it the usage does not change while processes take the place of the cache, so nothing is reported at
// all. A trigger of memory.pressure (PSI) reports stalls, and to take clean page cache away stalls hardly anybody: before the kernel's OOM
// killer came there were less than 10 ms of stalls, as in any second in which page cache is replaced. docs/eviction.md has the figures.
func Interval(policy *Policy, signals pressure.Signals) time.Duration {
	next := longest
	for _, t := range policy.Thresholds {
		seen, ok := signals.Read(t.Signal)
		if !ok {
			continue
		}
		left := seen.Available - t.Value.Of(seen.Capacity)
		rate, least := diskRate, shortestDisk
		switch t.Signal {
		case pressure.MemoryAvailable, pressure.AllocatableMemoryAvailable:
			rate, least = cmp.Or(policy.MemoryRate, memoryRate), near(left)
		case pressure.PIDAvailable:
			rate, least = pidRate, shortest
		case pressure.NodefsInodesFree, pressure.ImagefsInodesFree, pressure.ContainerfsInodesFree:
			rate = inodeRate
		case pressure.NodefsAvailable, pressure.ImagefsAvailable, pressure.ContainerfsAvailable:
		}
		if left < 0 { // the threshold is already met: measure every second, because relief takes longer than that
			left, least = 0, shortestDisk
		}
		wait := longest
		if left < rate*int64(longest/time.Second) {
			wait = time.Duration(float64(left) / float64(rate) * float64(time.Second))
		}
		next = min(next, max(wait, least))
	}
	return next
}

// near returns the shortest time until the next measurement of memory, of which left bytes are left above a threshold.
func near(left int64) time.Duration {
	if left >= burst {
		return shortest
	}
	return min(max(time.Duration(max(left, 0))*time.Second/time.Duration(burst), nearest), shortest)
}
