package syncloop

import "sync"

// errand does one kind of housekeeping in a goroutine of its own, one run at a time. If it is asked for during a run, one more
// run follows. The caller never waits, because the files that an errand reads may hang.
type errand struct {
	do    func()
	group *sync.WaitGroup

	mu      sync.Mutex
	running bool
	again   bool
	closed  bool
}

// ask makes the errand run. It never blocks.
func (e *errand) ask() {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
	case e.running:
		e.again = true
	default:
		e.running = true
		e.group.Go(e.run)
	}
}

func (e *errand) run() {
	for {
		e.do()
		e.mu.Lock()
		if !e.again || e.closed {
			e.running = false
			e.mu.Unlock()
			return
		}
		e.again = false
		e.mu.Unlock()
	}
}

// close prevents further runs.
func (e *errand) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}
