package rounds

import (
	"context"
	"sync"
	"time"
)

// Never is the value that the function of a Rounds returns if it need not be called again before the next Wake.
const Never time.Duration = -1

// Rounds calls a function again when Wake is called, or when the time that the function returned last has passed. Methods may be called
// concurrently.
type Rounds struct {
	round func(context.Context) time.Duration

	mu    sync.Mutex
	ctx   context.Context // nil: Begin was not called yet
	timer *time.Timer
	again bool // the function is to be called
	runs  bool // a goroutine calls the function
	group sync.WaitGroup
}

// New returns Rounds that call the function round. The result of round is how long to wait until the next call; Never means until Wake. New
// starts nothing.
func New(round func(context.Context) time.Duration) *Rounds { return &Rounds{round: round} }

// Begin calls the function now, and again and again until ctx ends. It returns at once. The caller calls join after ctx has ended; when join
// returns, no call runs. Begin may be called once.
func (r *Rounds) Begin(ctx context.Context) (join func()) {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	r.Wake()
	return func() {
		r.mu.Lock()
		if r.timer != nil {
			r.timer.Stop()
		}
		r.mu.Unlock()
		r.group.Wait()
	}
}

// Wake makes one more call of the function begin: at once, or after the call that is running now. Wake does not block. Before Begin it does
// nothing, because Begin makes a call.
func (r *Rounds) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil || r.ctx.Err() != nil {
		return
	}
	r.again = true
	if !r.runs {
		r.runs = true
		r.group.Go(r.run)
	}
}

// run calls the function until nothing asks for a further call.
func (r *Rounds) run() {
	for r.takes() {
		wait := r.round(r.ctx)
		r.mu.Lock()
		switch {
		case wait < 0 && r.timer != nil:
			r.timer.Stop()
		case wait < 0:
		case r.timer == nil:
			r.timer = time.AfterFunc(wait, r.Wake)
		default:
			r.timer.Reset(wait)
		}
		r.mu.Unlock()
	}
}

// takes reports whether the function must be called now. If it returns false, the goroutine of run ends.
func (r *Rounds) takes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.again || r.ctx.Err() != nil {
		r.runs = false
		return false
	}
	r.again = false
	return true
}

// Until calls begin (for example Rounds.Begin), waits until ctx ends, and then calls the function join that begin returned.
func Until(ctx context.Context, begin func(context.Context) (join func())) error {
	join := begin(ctx)
	<-ctx.Done()
	join()
	return nil
}
