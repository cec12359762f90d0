package syncloop

import "sync"

// errand does one kind of housekeeping in a goroutine of its own, never twice at a time. Whoever asks for it while it is
// under way gets one more run after that. Nobody waits: what an errand reads may hang.
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

// close lets no other run begin.
func (e *errand) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}
