package syncloop

import "sync"

// errand runs one kind of housekeeping in a goroutine of its own, one run at a time. A call of ask during a run causes one more run. The
// caller never waits, because a run may read files and hang.
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
