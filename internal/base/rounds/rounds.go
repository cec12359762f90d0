package rounds

import (
	"context"
	"fmt"
	"slices"
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
	again bool            // the function is to be called
	runs  bool            // a goroutine calls the function
	asks  []chan struct{} // calls of Turns that no call of the function has answered yet; each channel is closed after a whole call
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

// Turns returns nil if the function still works: a call of it begins after the call of Turns, and ends before ctx does. A watchdog uses
// Turns to notice that the function is stuck, for example because a lock that it needs is never released. name is the name of the work in the
// error. Turns makes one more call of the function begin.
func (r *Rounds) Turns(ctx context.Context, name string) error {
	answer := make(chan struct{})
	r.mu.Lock()
	r.asks = append(r.asks, answer)
	r.mu.Unlock()
	r.Wake()
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asks = slices.DeleteFunc(r.asks, func(a chan struct{}) bool { return a == answer })
		return fmt.Errorf("the loop of the %s takes no work", name)
	}
}

// run calls the function until nothing asks for a further call.
func (r *Rounds) run() {
	for {
		asks, ok := r.takes()
		if !ok {
			return
		}
		wait := r.round(r.ctx)
		for _, a := range asks {
			close(a)
		}
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

// takes reports whether the function must be called now, and returns the calls of Turns that this call of the function answers. If takes
// returns false, the goroutine of run ends.
func (r *Rounds) takes() (asks []chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.again || r.ctx.Err() != nil {
		r.runs = false
		return nil, false
	}
	r.again = false
	asks, r.asks = r.asks, nil
	return asks, true
}

// Until calls begin (for example Rounds.Begin), waits until ctx ends, and then calls the function join that begin returned.
func Until(ctx context.Context, begin func(context.Context) (join func())) error {
	join := begin(ctx)
	<-ctx.Done()
	join()
	return nil
}
