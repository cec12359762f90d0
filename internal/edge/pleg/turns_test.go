package pleg

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// A loop that waits for a lock that nobody gives back does not turn, and says so; once it has the lock it turns again.
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
	for range 2 { // asked first, it waits for the lock; asked again, it does not even hear it
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
