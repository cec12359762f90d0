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

// Beat answers a call of Turns. It takes the loop's lock first, because a loop whose lock is never released counts as stuck.
func Beat(answer chan<- struct{}, mu *sync.Mutex) {
	mu.Lock()
	close(answer)
	mu.Unlock()
}

// Turns returns nil when the loop's goroutine has received the request and got the loop's lock. It waits for that until ctx ends,
// and then returns an error.
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
