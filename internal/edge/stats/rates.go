package stats

import (
	"sync"
	"time"
)

// minWindow is the shortest time over which a CPU rate is worth computing. Two requests within this time get the same rate.
const minWindow = 5 * time.Second

// sample is the last reading of the CPU counter of one control group, and the rate that was computed from it.
type sample struct {
	at    time.Time
	nanos uint64
	rate  uint64 // CPU use in nanocores since the previous reading
	known bool
}

// rates turns CPU counters into nanocores.
type rates struct {
	mu   sync.Mutex
	last map[string]sample
}

// of returns the CPU rate, in nanocores, of the control group with this key; false: no rate is known yet. nanos is the group's CPU
// counter in nanoseconds, at is the time of the reading, and since is when the counter began. The first rate of a group covers the
// time from since to at.
func (r *rates) of(key string, nanos uint64, at, since time.Time) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	prev, ok := r.last[key]
	if ok && nanos >= prev.nanos {
		window := at.Sub(prev.at)
		if window <= -minWindow { // the clock of the runtime was set back; a window from now on has a length again
			r.last[key] = sample{at: at, nanos: nanos, rate: prev.rate, known: prev.known}
			return prev.rate, prev.known
		}
		if window < minWindow {
			return prev.rate, prev.known
		}
		now := sample{at: at, nanos: nanos, rate: perSecond(nanos-prev.nanos, window), known: true}
		r.last[key] = now
		return now.rate, true
	}
	now := sample{at: at, nanos: nanos}
	if life := at.Sub(since); !since.IsZero() && life >= time.Second {
		now.rate, now.known = perSecond(nanos, life), true
	}
	r.last[key] = now
	return now.rate, now.known
}

func perSecond(nanos uint64, window time.Duration) uint64 {
	return uint64(float64(nanos) / window.Seconds())
}

// keep drops the samples of all control groups whose keys are not in alive.
func (r *rates) keep(alive map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.last {
		if !alive[key] {
			delete(r.last, key)
		}
	}
}
