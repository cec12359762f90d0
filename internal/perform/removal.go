package perform

import (
	"context"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/pod"
)

// removalPlaces bounds removals from the runtime.
const removalPlaces = 4

// removalPatience is how long the removal of what a pod left waits, at most, for a moment in which nothing is being started
// or stopped.
const removalPatience = 20 * time.Second

// removalsWaiting is how many removals wait, at most: one more is made at once. Under constant load that moment never comes,
// and what has ended would take ever more of the disk and of the runtime's lists.
const removalsWaiting = 64

// removals puts the removal of pods behind everything else that the runtime has to do. Nobody waits for it, and where many
// pods end at once it would take the processors from those that have yet to stop.
type removals struct {
	places chan struct{} // holds a token per removal under way

	mu      sync.Mutex
	waiting int
	busy    int           // actions under way that somebody waits for
	calm    chan struct{} // closed while there are none
}

func newRemovals() *removals {
	calm := make(chan struct{})
	close(calm)
	return &removals{places: make(chan struct{}, removalPlaces), calm: calm}
}

// awaited reports whether somebody waits for an action of this kind, and the runtime is what does it.
func awaited(op pod.Op) bool {
	return op == pod.OpRunSandbox || op == pod.OpStartContainer || op == pod.OpStopContainer || op == pod.OpStopSandbox
}

// enter notes that an awaited action begins; leave that it has ended.
func (r *removals) enter() (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy++; r.busy == 1 {
		r.calm = make(chan struct{})
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.busy--; r.busy == 0 {
			close(r.calm)
		}
	}
}

// wait blocks until nothing awaited is under way, or patience is over; not at all where many wait.
func (r *removals) wait(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.mu.Lock()
	if r.waiting >= removalsWaiting {
		r.mu.Unlock()
		return
	}
	r.waiting++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiting--
	}()
	for {
		r.mu.Lock()
		calm, busy := r.calm, r.busy
		r.mu.Unlock()
		if busy == 0 {
			return
		}
		select {
		case <-calm: // somebody else may have begun since
		case <-ctx.Done():
			return
		}
	}
}

// remove takes its turn among the removals. What is left of a pod that no source has any more can wait; what a pod that
// goes on leaves behind may be in its way.
func (x *Performer) remove(ctx context.Context, job pod.Job, do func(context.Context, pod.Job) pod.Outcome) pod.Outcome {
	if job.Pod == nil {
		x.removals.wait(ctx, removalPatience)
	}
	select {
	case x.removals.places <- struct{}{}:
	case <-ctx.Done():
		return failed("Canceled", context.Cause(ctx))
	}
	defer func() { <-x.removals.places }()
	return do(ctx, job)
}
