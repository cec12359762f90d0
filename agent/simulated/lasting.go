package simulated

import (
	"slices"
	"sync"
)

// lasting holds values that each last until somebody removes them, such as faults. Its methods may be called concurrently.
type lasting[T any] struct {
	mu  sync.Mutex
	all []*T
}

// add adds a value, which lasts until remove is called. remove may be called more than once.
func (l *lasting[T]) add(one T) (remove func()) {
	own := &one
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, own)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(other *T) bool { return other == own })
	}
}

// now returns the values that last at this moment, oldest first.
func (l *lasting[T]) now() []*T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}
