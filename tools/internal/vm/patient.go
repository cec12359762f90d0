package vm

import (
	"context"
	"fmt"
	"time"
)

// tick is how often Patient reads the clock. If more than two ticks pass between two reads, only two ticks count.
const tick = 500 * time.Millisecond

// Patient returns a context that ends when this process has run for the time bound. Time in which the process did not run (frozen, or
// without a CPU on a busy machine) hardly counts, because QEMU did not run either. context.Cause returns an error that contains the text
// what.
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

// Await calls look, with the pause every between two calls, until done is true. After the time bound it returns an error with the text what
// and the last state that look returned.
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
