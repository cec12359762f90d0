package pulse

import (
	"context"
	"fmt"
	"sync"
)

// Pulse checks one loop.
type Pulse struct {
	name  string
	asked chan chan<- struct{}
}

// New returns the Pulse of a loop. Errors contain the loop's name.
func New(name string) Pulse { return Pulse{name: name, asked: make(chan chan<- struct{})} }

// Asked delivers a value for each waiting call of Turns. The loop calls Beat with that value.
func (p Pulse) Asked() <-chan chan<- struct{} { return p.asked }

// Beat answers a call of Turns. It first locks mu, the loop's lock, because a loop whose lock is never released counts as stuck.
func Beat(answer chan<- struct{}, mu *sync.Mutex) {
	mu.Lock()
	close(answer)
	mu.Unlock()
}

// Turns returns nil if the loop still works: its goroutine receives the request and gets the loop's lock. If that has not happened when ctx
// ends, Turns returns an error.
func (p Pulse) Turns(ctx context.Context) error {
	answer := make(chan struct{})
	select {
	case p.asked <- answer:
	case <-ctx.Done():
		return fmt.Errorf("the loop of the %s takes no work", p.name)
	}
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the loop of the %s does not get its lock", p.name)
	}
}
