package work

import (
	"context"
	"slices"
	"sync"
)

// Semaphore bounds how many jobs run at once: each job has a slot. Jobs that wait get free slots in the order of their arrival. All methods
// may be called concurrently. The zero value has no bound.
type Semaphore struct {
	mu      sync.Mutex
	most    int // number of slots; 0 or less: no bound
	taken   int
	waiting []chan struct{} // each channel is closed when its job has a slot
}

// Take blocks until the job has a slot or ctx ends; in the second case it returns the error of ctx. Leave gives the slot back.
func (s *Semaphore) Take(ctx context.Context) error {
	s.mu.Lock()
	if len(s.waiting) == 0 && s.free() {
		s.taken++
		s.mu.Unlock()
		return nil
	}
	slot := make(chan struct{})
	s.waiting = append(s.waiting, slot)
	s.mu.Unlock()
	select {
	case <-slot:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, slot); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else { // the job got its slot just as ctx ended
		s.taken--
		s.admit()
	}
	return ctx.Err()
}

// Leave gives a slot back.
func (s *Semaphore) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.admit()
}

// Bound replaces the number of slots; 0 or less: no bound. If more slots are taken, their jobs keep them.
func (s *Semaphore) Bound(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.admit()
}

// Load returns how many slots are taken and how many jobs wait.
func (s *Semaphore) Load() (taken, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, len(s.waiting)
}

// free reports whether a slot is free. The caller holds the lock.
func (s *Semaphore) free() bool { return s.most <= 0 || s.taken < s.most }

// admit gives free slots to jobs that wait. The caller holds the lock.
func (s *Semaphore) admit() {
	for len(s.waiting) > 0 && s.free() {
		s.taken++
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
}
