package work

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// spread runs n jobs. took returns the time of a job from the number of jobs that run with it. spread returns how long all jobs
// took together, and the largest number that ran at once.
func spread(t *testing.T, turns *Turns, n int, took func(among int) time.Duration) (all time.Duration, most int) {
	t.Helper()
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		running int
	)
	began := time.Now()
	for range n {
		wg.Go(func() {
			done, err := turns.Wait(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			running++
			most = max(most, running)
			d := took(running)
			mu.Unlock()
			time.Sleep(d)
			mu.Lock()
			running--
			mu.Unlock()
			done()
		})
	}
	wg.Wait()
	return time.Since(began), most
}

func TestTurnsKeepComputingJobsFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(6, 64)
		all, most := spread(t, turns, 100, func(among int) time.Duration { return time.Duration(among) * 100 * time.Millisecond })
		if most > 12 {
			t.Errorf("%d jobs that only take time from each other ran at once; at most 6, or 12 in a trial, were wanted", most)
		}
		if all > 15*time.Second {
			t.Errorf("100 jobs that need 100 ms of the machine each took %v", all)
		}
	})
}

func TestTurnsGrowForJobsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(6, 64)
		all, most := spread(t, turns, 100, func(int) time.Duration { return 2 * time.Second })
		if most < 12 || all > 20*time.Second {
			t.Errorf("100 jobs that wait 2 s each took %v, at most %d at once; six at a time take 34 s", all, most)
		}
	})
}

// Each job takes 30 s, which is longer than a job keeps its turn, as a stop with the usual grace period does. The number of slots still
// grows to the maximum.
func TestTurnsGrowForJobsThatWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(6, 64)
		all, most := spread(t, turns, 100, func(int) time.Duration { return 30 * time.Second })
		if most < 64 || all > 75*time.Second {
			t.Errorf("100 jobs that wait 30 s each took %v, at most %d at once", all, most)
		}
	})
}

func TestAJobThatHangsGivesUpItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1, 1)
		done, err := turns.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		next, err := turns.Wait(t.Context())
		if err != nil || time.Since(began) != longest {
			t.Fatalf("the next job began after %v (%v); the first was to give up its turn after %v", time.Since(began), err, longest)
		}
		done() // the job has lost its turn already
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a third job has a turn beside the second: %v", err)
		}
		next()
		last, err := turns.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last()
	})
}
