package roundstest

import (
	"context"
	"sync"
	"testing"
	"time"
)

// StandsStill runs a loop and checks its method Turns (the argument turns): while another goroutine holds the loop's lock, Turns returns an
// error; when the lock is free again, it succeeds; after the loop has ended, it returns an error.
func StandsStill(t *testing.T, run, turns func(context.Context) error, lock sync.Locker) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	within := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return turns(ctx)
	}
	if err := within(time.Minute); err != nil {
		t.Fatal(err)
	}
	lock.Lock()
	for range 2 { // the loop may reach the lock only during the first call; during the second it waits for the lock from beginning to end
		if within(20*time.Millisecond) == nil {
			t.Error("the loop turns without its lock")
		}
	}
	lock.Unlock()
	if err := within(time.Minute); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if within(20*time.Millisecond) == nil {
		t.Error("a loop that has ended turns")
	}
}
