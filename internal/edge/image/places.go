package image

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many pulls run at the same time. Each pull takes a slot. Waiting pulls get free slots in the order of their arrival.
type places struct {
	mu    sync.Mutex
	most  int // 0 or less: no bound
	taken int
	queue []chan struct{} // a channel is closed when its waiter has a slot
}

// take waits for a slot until ctx ends. leave gives the slot back.
func (p *places) take(ctx context.Context) error {
	p.mu.Lock()
	if p.free() && len(p.queue) == 0 {
		p.taken++
		p.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	p.queue = append(p.queue, mine)
	p.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, mine); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	} else { // the waiter got the slot just as ctx ended
		p.taken--
		p.admit()
	}
	return ctx.Err()
}

// leave gives a slot back.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.admit()
}

// bound replaces the number of slots.
func (p *places) bound(most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = most
	p.admit()
}

// The caller of free and admit holds the lock.
func (p *places) free() bool { return p.most <= 0 || p.taken < p.most }

func (p *places) admit() {
	for len(p.queue) > 0 && p.free() {
		p.taken++
		close(p.queue[0])
		p.queue = slices.Delete(p.queue, 0, 1)
	}
}
