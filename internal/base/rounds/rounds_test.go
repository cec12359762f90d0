package rounds_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wherry-node/wherry/internal/base/rounds"
)

// The function is called at the beginning, after the waits that it returns, and when it is woken. A wake-up replaces the wait.
func TestRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		r := rounds.New(func(context.Context) time.Duration {
			at = append(at, time.Since(began))
			if len(at) == 4 {
				return rounds.Never
			}
			return 10 * time.Second
		})
		r.Wake() // Wake has no effect before Begin
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Begin(ctx)
		time.Sleep(13 * time.Second)
		r.Wake()
		time.Sleep(time.Hour)
		r.Wake()
		time.Sleep(15 * time.Second)
		cancel()
		join()
		r.Wake()
		time.Sleep(time.Hour)
		want := []time.Duration{0, 10, 13, 23, 3613, 3623}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(at, want) {
			t.Errorf("calls at %v, want %v", at, want)
		}
	})
}

// A wake-up during a call makes one more call after it, however many wake-ups there are. Calls do not overlap.
func TestWakeDuringACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, inside := 0, 0
		r := rounds.New(func(context.Context) time.Duration {
			if inside++; inside > 1 {
				t.Error("two calls at the same time")
			}
			calls++
			time.Sleep(time.Minute)
			inside--
			return rounds.Never
		})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Begin(ctx)
		for range 10 {
			time.Sleep(time.Second)
			r.Wake()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
		cancel()
		join()
	})
}

// Between two calls there is no goroutine. After the end of the context, join waits for the call that runs, and no other begins.
func TestRest(t *testing.T) { //nolint:paralleltest // it counts goroutines
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		ended := 0
		r := rounds.New(func(ctx context.Context) time.Duration {
			time.Sleep(time.Second)
			ended++
			return time.Second
		})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Begin(ctx)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		for range 1000 { // a goroutine that has ended is counted until the scheduler has removed it
			if runtime.NumGoroutine() <= before {
				break
			}
			runtime.Gosched()
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines between two calls, %d before", n, before)
		}
		time.Sleep(time.Second) // the second call runs
		cancel()
		join()
		if ended != 2 {
			t.Errorf("%d calls have ended, want 2", ended)
		}
		time.Sleep(time.Hour)
		if ended != 2 {
			t.Errorf("%d calls after the end, want 2", ended)
		}
	})
}

// Turns waits for a call of the function that begins later, and returns an error if a call that is stuck prevents it. It makes no call
// overlap another one.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, stuck := 0, false
		r := rounds.New(func(ctx context.Context) time.Duration {
			calls++
			if stuck {
				<-ctx.Done()
			}
			time.Sleep(time.Second)
			return rounds.Never
		})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Begin(ctx)
		turns := func() error {
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return r.Turns(within, "pods")
		}
		time.Sleep(500 * time.Millisecond) // the first call runs
		err := turns()
		synctest.Wait()
		if err != nil || calls != 2 {
			t.Errorf("%v after %d calls, want success after the second", err, calls)
		}
		stuck = true  // no call runs now
		for range 2 { // the first one makes the call that is stuck, the second one waits for the call after it
			if err := turns(); err == nil || err.Error() != "the loop of the pods takes no work" {
				t.Errorf("%v, want an error", err)
			}
		}
		cancel()
		join()
		if turns() == nil {
			t.Error("the function works after its end")
		}
	})
}
