package image

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many pulls run at the same time. Each pull takes a slot. Waiting pulls get free slots in the order of their arrival.
type slots struct {
	mu    sync.Mutex
	most  int // 0 or less: no bound
	taken int
	queue []chan struct{} // a channel is closed when its waiter has a slot
}

// take waits for a slot until ctx ends. leave gives the slot back.
func (s *slots) take(ctx context.Context) error {
	s.mu.Lock()
	if s.free() && len(s.queue) == 0 {
		s.taken++
		s.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	s.queue = append(s.queue, mine)
	s.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, mine); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	} else { // the waiter got the slot just as ctx ended
		s.taken--
		s.admit()
	}
	return ctx.Err()
}

// leave gives a slot back.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.admit()
}

// bound replaces the number of slots.
func (s *slots) bound(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.admit()
}

// The caller of free and admit holds the lock.
func (s *slots) free() bool { return s.most <= 0 || s.taken < s.most }

func (s *slots) admit() {
	for len(s.queue) > 0 && s.free() {
		s.taken++
		close(s.queue[0])
		s.queue = slices.Delete(s.queue, 0, 1)
	}
}
