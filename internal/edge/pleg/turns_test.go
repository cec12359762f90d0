package pleg

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// If the loop waits for a lock that is never released, Turns returns an error. When the lock is released, Turns succeeds again.
func TestTurnsNoticesALoopThatStandsStill(t *testing.T) {
	t.Parallel()
	g := New(Config{Runtime: &world{}, Unsupported: func(error) bool { return true }, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	turns := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return g.Turns(ctx)
	}
	if err := turns(time.Minute); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	for range 2 { // in the first round the loop waits for the lock; in the second it is stuck already
		if turns(20*time.Millisecond) == nil {
			t.Error("the loop turns without its lock")
		}
	}
	g.mu.Unlock()
	if err := turns(time.Minute); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if turns(20*time.Millisecond) == nil {
		t.Error("a loop that has ended turns")
	}
}
