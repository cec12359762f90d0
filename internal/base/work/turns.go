package work

import (
	"context"
	"sync"
	"time"
)

// Turns is a Semaphore whose number of slots is between two bounds and adapts to the load of the machine (see Slots). A job has its turn
// while it has a slot. All methods may be called concurrently.
type Turns struct {
	semaphore Semaphore

	mu    sync.Mutex
	slots Slots
}

// NewTurns returns Turns whose number of jobs at once is between least and most.
func NewTurns(least, most int) *Turns {
	t := &Turns{slots: NewSlots(least, most, time.Now())}
	t.semaphore.Bound(t.slots.Now())
	return t
}

// Wait blocks until the job has a turn or ctx ends; in the second case it returns the error of ctx. The caller calls done once, at
// the end of the job. A job that takes longer than 6 s loses its turn before its end, so that jobs that hang never stop the others.
// The job is then measured as if it had ended. So jobs that only wait, for whatever reason, let the number of slots grow.
func (t *Turns) Wait(ctx context.Context) (done func(), err error) {
	if err := t.semaphore.Take(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	among, _ := t.semaphore.Load()
	leave := sync.OnceFunc(func() { t.ended(began, among) })
	late := time.AfterFunc(longest, leave)
	return func() {
		late.Stop()
		leave()
	}, nil
}

// ended gives back the slot of a job and adapts the number of slots. among is how many jobs had slots when the job began, itself
// included.
func (t *Turns) ended(began time.Time, among int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, waiting := t.semaphore.Load()
	t.slots.Ended(began, time.Now(), float64(among+now)/2, waiting > 0)
	t.semaphore.Bound(t.slots.Now())
	t.semaphore.Leave()
}
