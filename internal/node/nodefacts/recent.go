package nodefacts

import (
	"sync"
	"time"
)

// recentFor is how long facts from the host's files stay valid for new containers.
const recentFor = 5 * time.Second

// Recent keeps facts from the host's files for a few seconds, because every container start needs them. No lock is held while a container
// start reads the files. Other container starts meanwhile use the last facts; if there are none yet, they read the files too. The zero
// value is usable. Its methods may be called concurrently.
type Recent[T any] struct {
	mu      sync.Mutex
	at      time.Time
	reading bool
	forgets int // how often Forget was called
	facts   T
}

// Last returns the last facts if they are recent enough. Otherwise ok is false, and the caller must read the facts and call Put with the
// ticket.
func (r *Recent[T]) Last() (facts T, ticket int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := !r.at.IsZero()
	if known && (r.reading || time.Since(r.at) < recentFor) {
		return r.facts, r.forgets, true
	}
	r.reading = true
	return facts, r.forgets, false
}

// Put stores facts that were read, unless Forget was called since the call of Last that returned the ticket.
func (r *Recent[T]) Put(ticket int, facts T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ticket == r.forgets {
		r.facts, r.at, r.reading = facts, time.Now(), false
	}
}

// Forget makes the next container start read the facts again.
func (r *Recent[T]) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.reading = time.Time{}, false
	r.forgets++
}
