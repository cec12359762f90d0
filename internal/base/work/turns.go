package work

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Turns bounds how many jobs of one kind run at once, first come, first served. The number is between two bounds and adapts to the load
// of the machine (see Slots). All methods may be called concurrently.
type Turns struct {
	mu      sync.Mutex
	slots   Slots
	inside  int
	waiting []chan struct{} // closed when the job has a turn
}

// NewTurns returns Turns whose number of jobs at once is between least and most.
func NewTurns(least, most int) *Turns {
	return &Turns{slots: NewSlots(least, most, time.Now())}
}

// Wait blocks until the job has a turn or ctx ends; in the second case it returns the error of ctx. The caller calls done once,
// at the end of the job. A job that takes longer than 6 s loses its turn before its end, so that jobs that hang never stop the
// others.
func (t *Turns) Wait(ctx context.Context) (done func(), err error) {
	t.mu.Lock()
	if len(t.waiting) == 0 && t.inside < t.slots.Now() {
		defer t.mu.Unlock()
		return t.admit(), nil
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		if i := slices.Index(t.waiting, turn); i >= 0 {
			t.waiting = slices.Delete(t.waiting, i, i+1)
		} else { // the job got its turn just as ctx ended
			t.inside--
			t.dispatch()
		}
		return nil, ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside-- // dispatch has counted it
	return t.admit(), nil
}

// admit begins a job. The caller holds the lock. A job that loses its turn is measured as if it ended then: if jobs wait, for whatever
// reason, the runtime can run more of them.
func (t *Turns) admit() (done func()) {
	t.inside++
	began, among := time.Now(), t.inside
	leave := sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.slots.Ended(began, time.Now(), float64(among+t.inside)/2, len(t.waiting) > 0)
		t.inside--
		t.dispatch()
	})
	late := time.AfterFunc(longest, leave)
	return func() {
		late.Stop()
		leave()
	}
}

// dispatch gives turns to waiting jobs. The caller holds the lock.
func (t *Turns) dispatch() {
	for len(t.waiting) > 0 && t.inside < t.slots.Now() {
		t.inside++
		close(t.waiting[0])
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	if len(t.waiting) == 0 {
		t.waiting = nil
	}
}
