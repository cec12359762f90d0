package pleg

import (
	"slices"
	"time"
)

// Inspections of pods that answer and of pods that do not have places of their own. A pod whose last inspection failed or
// hung is a suspect until one has gone well. A call that takes long gives its place back before it ends: nobody knows of a
// pod beforehand that it will hang, and a hundred that do must not keep the others waiting. The calls themselves go on, at
// most one for each pod.
const (
	holdHealthy = time.Second
	suspects    = 4
	holdSuspect = 5 * time.Second
)

// suspect reports whether the pod's inspections belong into the pool of those that fail or hang. It is called with the lock
// held.
func (e *entry) suspect() bool { return e.failed != nil || e.slow }

// places are the two pools. The generator's lock guards them.
type places struct{ healthy, suspect pool }

// pool is a number of places, each of which a call holds until it ends or for a while, whichever is shorter.
type pool struct {
	size  int
	hold  time.Duration
	calls []*call     // under way, by when they began
	timer *time.Timer // of the next place that is given back; nil: nobody waits
}

func (p *places) of(suspect bool) *pool {
	if suspect {
		return &p.suspect
	}
	return &p.healthy
}

// free reports whether a call may begin now.
func (p *places) free(suspect bool, now time.Time) bool {
	pool := p.of(suspect)
	n := len(pool.calls)
	return n < pool.size || now.Sub(pool.calls[n-pool.size].began) >= pool.hold
}

func (p *places) take(suspect bool, c *call) {
	pool := p.of(suspect)
	pool.calls = append(pool.calls, c)
}

// leave gives a place back when its call has ended.
func (p *places) leave(c *call) {
	for _, pool := range []*pool{&p.healthy, &p.suspect} {
		if i := slices.Index(pool.calls, c); i >= 0 {
			pool.calls = slices.Delete(pool.calls, i, i+1)
			return
		}
	}
}

// wakeAt calls wake when the next place is given back by a call that goes on.
func (p *places) wakeAt(suspect bool, now time.Time, wake func()) {
	pool := p.of(suspect)
	next := pool.calls[len(pool.calls)-pool.size].began.Add(pool.hold)
	if pool.timer == nil {
		pool.timer = time.AfterFunc(next.Sub(now), wake)
		return
	}
	pool.timer.Reset(next.Sub(now))
}
