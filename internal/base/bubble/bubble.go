package bubble

import (
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// Settle waits until everything else in the bubble waits: all that happens at the present instant has happened. It may be called concurrently,
// only in the bubble.
type Settle func()

// Run calls f in a new bubble, whose time begins at midnight of 2000-01-01 UTC, and returns its error. It also returns an error if f panics, or if
// all goroutines of the bubble wait for each other for ever, also after the return of f.
func Run(f func(Settle) error) (err error) {
	defer func() {
		if why := recover(); why != nil { // of synctest: the bubble cannot go on
			err = fmt.Errorf("virtual time cannot go on: %v", why)
		}
	}()
	synctest.Test(new(testing.T), func(*testing.T) { err = guarded(f) })
	return err
}

// guarded returns the error of f, or its panic as an error.
func guarded(f func(Settle) error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("panic in virtual time: %v\n%s", why, debug.Stack())
		}
	}()
	turn := make(chan struct{}, 1) // not a lock: for synctest, who waits for a lock is at work
	return f(func() {
		turn <- struct{}{}
		synctest.Wait()
		<-turn
	})
}
