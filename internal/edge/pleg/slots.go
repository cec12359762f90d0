package pleg

import (
	"slices"
	"time"
)

// Inspections run in two pools: healthy pods, and suspects, whose last inspection failed or hung. A suspect becomes healthy again
// with its first inspection that succeeds. A call that takes long loses its slot before it ends, because it is not known in
// advance which pods will hang, and a hundred hanging pods must not delay the others. The call itself continues; each pod has at
// most one.
const (
	holdHealthy = time.Second
	suspects    = 4
	holdSuspect = 5 * time.Second
)

// suspect reports whether the pod belongs to the pool of suspects. It is called with the lock held.
func (e *entry) suspect() bool { return e.failed != nil || e.slow }

// slots holds the two pools of inspections: of healthy pods, and of suspects. The generator's lock guards them.
type slots struct{ healthy, suspect pool }

// pool limits how many calls run at once: each has a slot. A call keeps its slot until it ends, but not longer than the duration hold.
type pool struct {
	size  int
	hold  time.Duration
	calls []*call     // calls in flight that have a slot, oldest first
	timer *time.Timer // calls wake when a call loses its slot; nil: wakeAt was never called
}

func (p *slots) of(suspect bool) *pool {
	if suspect {
		return &p.suspect
	}
	return &p.healthy
}

// free reports whether the pool of suspects (suspect is true) or of healthy pods has a free slot now.
func (p *slots) free(suspect bool, now time.Time) bool {
	pool := p.of(suspect)
	n := len(pool.calls)
	return n < pool.size || now.Sub(pool.calls[n-pool.size].began) >= pool.hold
}

func (p *slots) take(suspect bool, c *call) {
	pool := p.of(suspect)
	pool.calls = append(pool.calls, c)
}

// leave gives back the slot of a call that has ended.
func (p *slots) leave(c *call) {
	for _, pool := range []*pool{&p.healthy, &p.suspect} {
		if i := slices.Index(pool.calls, c); i >= 0 {
			pool.calls = slices.Delete(pool.calls, i, i+1)
			return
		}
	}
}

// wakeAt calls wake when the next call that is still in flight loses its slot.
func (p *slots) wakeAt(suspect bool, now time.Time, wake func()) {
	pool := p.of(suspect)
	next := pool.calls[len(pool.calls)-pool.size].began.Add(pool.hold)
	if pool.timer == nil {
		pool.timer = time.AfterFunc(next.Sub(now), wake)
		return
	}
	pool.timer.Reset(next.Sub(now))
}
