package simcri

import (
	"context"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// processors are the CPUs that the work of a runtime shares. If there are more pieces of work than CPUs, each piece gets an equal
// share and takes longer. The zero value has unlimited CPUs.
type processors struct {
	count int

	mu    sync.Mutex
	work  map[*piece]bool
	since time.Time // when the remaining CPU time of each piece was last updated
	timer *time.Timer
}

type piece struct {
	left float64 // CPU time that the piece of work still needs, in seconds
	done chan struct{}
}

// spend waits until the work has had CPU time d.
func (p *processors) spend(ctx context.Context, d time.Duration) error {
	if p.count == 0 || d <= 0 {
		return nil
	}
	w := &piece{left: d.Seconds(), done: make(chan struct{})}
	p.change(func() {
		if p.work == nil {
			p.work = map[*piece]bool{}
		}
		p.work[w] = true
	})
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		p.change(func() { delete(p.work, w) })
		return status.FromContextError(ctx.Err()).Err()
	}
}

// speed returns the share of a CPU that each piece of work gets.
func (p *processors) speed() float64 {
	return min(1, float64(p.count)/max(1, float64(len(p.work))))
}

// change updates the remaining CPU times, calls f, and sets the timer to the time when the next piece of work ends.
func (p *processors) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	done := now.Sub(p.since).Seconds() * p.speed()
	p.since = now
	for w := range p.work {
		if w.left -= done; w.left < 1e-6 {
			delete(p.work, w)
			close(w.done)
		}
	}
	f()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	next := math.Inf(1)
	for w := range p.work {
		next = min(next, w.left)
	}
	if len(p.work) > 0 {
		p.timer = time.AfterFunc(time.Duration(next/p.speed()*1e9)+1, func() { p.change(func() {}) })
	}
}
