package vm

import (
	"context"
	"fmt"
	"time"
)

// tick is how often Patient reads the clock. The time between two reads counts as at most two ticks.
const tick = 500 * time.Millisecond

// Patient returns a context that ends when the process has run for bound. Time in which the process stood still (frozen, or without a
// processor on a busy machine) hardly counts, because the emulator also stood still. context.Cause returns an error that contains the
// text what.
func Patient(ctx context.Context, bound time.Duration, what string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		ticker := time.NewTicker(min(tick, bound))
		defer ticker.Stop()
		last, spent := time.Now(), time.Duration(0)
		for spent < bound {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				now := time.Now()
				spent += min(now.Sub(last), 2*tick)
				last = now
			}
		}
		cancel(fmt.Errorf("%s: not in %s", what, bound))
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Await repeats look until it returns done, at most for bound. The error contains the text what, and the last state that look returned.
func Await(ctx context.Context, what string, bound, every time.Duration, look func(context.Context) (done bool, state string)) error {
	ctx, cancel := Patient(ctx, bound, "wait for "+what)
	defer cancel()
	for {
		done, state := look(ctx)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %s", context.Cause(ctx), state)
		case <-time.After(every):
		}
	}
}
