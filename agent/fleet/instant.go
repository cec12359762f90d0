package fleet

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// Instants passes the changes of a fleet in virtual time on in an order that follows from the seed alone. What happens at one instant of virtual time
// happens in any order, so Instants keeps the changes of an instant until the next one, leaves only the last change of each node and pod, and sorts
// them. An instant is a millisecond, because agents that have to tell two things of the same instant apart let single nanoseconds pass. Methods may be
// called concurrently.
type Instants struct {
	mu  sync.Mutex
	to  func(Change)
	at  time.Duration
	now map[[2]string]Change // the changes of the instant at, by node and pod
	was map[[2]string]Change // the last change that was passed on, without its time; without what is gone
}

// NewInstants returns Instants that call to, one call at a time.
func NewInstants(to func(Change)) *Instants {
	return &Instants{to: to, now: map[[2]string]Change{}, was: map[[2]string]Change{}}
}

// Changed notes a change: it is for Config.Changed.
func (i *Instants) Changed(c Change) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c.At = c.At.Truncate(time.Millisecond)
	if c.At != i.at {
		i.pass()
		i.at = c.At
	}
	i.now[[2]string{c.Node, c.Pod}] = c
}

// Flush passes the changes of the last instant on.
func (i *Instants) Flush() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pass()
}

// pass passes the changes of the present instant on. The caller holds the lock.
func (i *Instants) pass() {
	keys := slices.Collect(maps.Keys(i.now))
	inorder.Sort(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, key := range keys {
		c := i.now[key]
		same := c
		same.At = 0
		was, known := i.was[key]
		if known && was == same || !known && c.State == StateGone {
			continue // it came back to what it was, or came and went, within the instant
		}
		if c.State == StateGone {
			delete(i.was, key)
		} else {
			i.was[key] = same
		}
		i.to(c)
	}
	clear(i.now)
}
