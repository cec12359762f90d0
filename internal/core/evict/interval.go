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
)

// These constants are the highest rates per second at which a resource may be used up.
const (
	memoryRate = int64(2) << 30
	diskRate   = int64(1) << 30
	inodeRate  = int64(50_000)
	pidRate    = int64(20_000)
)

// Interval returns the time until the next measurement: the shortest time in which any threshold could be reached. A node that is far from
// its thresholds measures every 10 s, and a shortage is noticed within 250 ms (of disk space within 1 s).
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
			rate, least = cmp.Or(policy.MemoryRate, memoryRate), shortest
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
