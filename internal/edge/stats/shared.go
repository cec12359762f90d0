package stats

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// shared lets requests that arrive at the same time share one measurement. Without it, clients could make the node walk the directories of all pods'
// logs any number of times at once.
type shared struct {
	mu     sync.Mutex
	flight *flight // the measurement that runs; nil: none
}

// flight is a measurement for all who wait for it.
type flight struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{} // closed when the fields below are set
	body    []byte
	err     error
	broken  any // the value with which measure panicked; nil: it did not
}

// result returns the result of a flight that has ended. A panic goes on in each waiter, where the server ends only the request: the goroutine of the
// flight would end the program.
func (f *flight) result() ([]byte, error) {
	if f.broken != nil {
		panic(f.broken)
	}
	return f.body, f.err
}

// do returns the result of measure: of the call that runs, or of a new one. The call ends early when nobody waits for it any more; the last one to
// leave waits for its end, so that no measurement runs without a request.
func (s *shared) do(ctx context.Context, measure func(context.Context) ([]byte, error)) ([]byte, error) {
	f := s.board(ctx, measure)
	select {
	case <-f.done:
		return f.result()
	case <-ctx.Done():
	}
	s.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && s.flight == f {
		s.flight = nil
	}
	s.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
	return nil, ctx.Err()
}

// board counts the caller as one who waits for the measurement that runs, or begins one.
func (s *shared) board(by context.Context, measure func(context.Context) ([]byte, error)) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		s.flight.waiters++
		return s.flight
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(by))
	f := &flight{waiters: 1, cancel: cancel, done: make(chan struct{})}
	s.flight = f
	go func() {
		defer close(f.done)
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				f.broken = fmt.Sprintf("%v\n%s", v, debug.Stack())
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.flight == f {
				s.flight = nil
			}
		}()
		f.body, f.err = measure(ctx)
	}()
	return f
}
