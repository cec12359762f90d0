package work

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// bubble runs f in a synctest bubble.
func bubble(t *testing.T, cfg Config, f func(t *testing.T, s *Scheduler)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f(t, New(cfg))
		synctest.Wait()
	})
}

// again runs jobs of a pod one after another until ctx ends, and counts them.
func again(ctx context.Context, s *Scheduler, c Class, uid types.UID, took time.Duration, count *atomic.Int64) {
	for ctx.Err() == nil {
		j, err := s.Wait(ctx, c, uid)
		if err != nil {
			return
		}
		time.Sleep(took)
		count.Add(1)
		j.Done()
	}
}

// share lets ten pods of each class compete for a hundred seconds, with jobs of a tenth of a second. It returns how many jobs of each class
// were done.
func share(t *testing.T, s *Scheduler, classes ...Class) map[Class]int {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	counts := map[Class]*[10]atomic.Int64{}
	for _, c := range classes {
		counts[c] = &[10]atomic.Int64{}
		for i := range 10 {
			go again(ctx, s, c, types.UID(fmt.Sprint(c, i)), 100*time.Millisecond, &counts[c][i])
		}
	}
	<-ctx.Done()
	time.Sleep(time.Second)
	out := map[Class]int{}
	for c, each := range counts {
		for i := range each {
			n := each[i].Load()
			if 3*n < 2*each[0].Load() {
				t.Errorf("%s: pods do not take turns: %d and %d", c, each[0].Load(), n)
			}
			out[c] += int(n)
		}
	}
	return out
}

// While fewer jobs than the limit are in flight, no job waits, whatever its class.
func TestAnIdleMachineDelaysNothing(t *testing.T) {
	bubble(t, Config{Processors: 4}, func(t *testing.T, s *Scheduler) {
		for c := range Classes {
			j, now := s.Enter(c, "u", nil, func() { t.Error("granted") })
			if !now {
				t.Errorf("%s waits", c)
			}
			j.Done()
			j.Done() // the second call does not count
		}
		if l := s.Load(); l != (Load{Limit: 8}) {
			t.Errorf("%+v", l)
		}
	})
}

// Competing classes get their shares, and a class that is alone gets everything.
func TestShares(t *testing.T) {
	bubble(t, Config{Processors: 2, Most: 4}, func(t *testing.T, s *Scheduler) {
		got := share(t, s, First, Periodic, Removal)
		sum := float64(got[First] + got[Periodic] + got[Removal])
		if sum < 3900 {
			t.Errorf("%v: slots were left empty", got)
		}
		for c, want := range map[Class]float64{First: 8. / 12, Periodic: 2. / 12, Removal: 2. / 12} {
			if part := float64(got[c]) / sum; part < want-0.05 || part > want+0.05 {
				t.Errorf("%s got %.2f of the machine, want %.2f: %v", c, part, want, got)
			}
		}
	})
}

func TestAloneAClassGetsAll(t *testing.T) {
	bubble(t, Config{Processors: 2, Most: 4}, func(t *testing.T, s *Scheduler) {
		if got := share(t, s, Rotation); got[Rotation] < 3900 {
			t.Errorf("%v", got)
		}
	})
}

// A class without a share starves beside a class that always has jobs; shares prevent that.
func TestWithoutAShare(t *testing.T) {
	shares := DefaultShares()
	shares[Removal] = 0
	bubble(t, Config{Processors: 2, Most: 4, Shares: &shares}, func(t *testing.T, s *Scheduler) {
		if got := share(t, s, Periodic, Removal); got[Removal] > 10 {
			t.Errorf("%v", got)
		}
	})
}

// Starts and commands of people do not wait. Beside them, jobs that can wait get only a quarter of the limit.
func TestStartsGoAtOnce(t *testing.T) {
	bubble(t, Config{Processors: 4, Most: 8}, func(t *testing.T, s *Scheduler) {
		var starts []*Job
		for range 100 {
			starts = append(starts, s.Begin(Start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var count atomic.Int64
		for i := range 20 {
			go again(ctx, s, Periodic, types.UID(fmt.Sprint(i)), 100*time.Millisecond, &count)
		}
		time.Sleep(1050 * time.Millisecond)
		synctest.Wait()
		if n := count.Load(); n != 20 {
			t.Errorf("%d commands beside starts in a second, want 20: two at a time", n)
		}
		for _, j := range starts {
			j.Done()
		}
		time.Sleep(time.Second)
		if n := count.Load(); n < 55 {
			t.Errorf("%d commands, want more when the starts are over", n)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

// A single start beside many probes gets most of the machine, and not only the share of one job among many.
func TestOneStartGetsMostOfTheMachine(t *testing.T) {
	bubble(t, Config{Processors: 2, Most: 16}, func(t *testing.T, s *Scheduler) {
		s.limit.now = 16
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var count atomic.Int64
		for i := range 100 {
			go again(ctx, s, Periodic, types.UID(fmt.Sprint(i)), 100*time.Millisecond, &count)
		}
		time.Sleep(time.Second)
		start := s.Begin(Start)
		time.Sleep(150 * time.Millisecond) // the jobs in flight end
		synctest.Wait()
		if n := s.Load().Flying - 1; n > 4 {
			t.Errorf("%d commands run beside a start, want 4, a quarter of the limit", n)
		}
		start.Done()
		synctest.Wait()
		if n := s.Load().Flying; n < 10 {
			t.Errorf("%d commands run after the start, want 10 or 16, the limit", n)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

// After the deletion of many pods, hundreds of removals wait. While pods start, no removal begins for ten seconds. After that, as many
// removals run at once as there are processors (two).
func TestRemovalsYieldToStarts(t *testing.T) {
	bubble(t, Config{Processors: 2, Most: 32}, func(t *testing.T, s *Scheduler) {
		s.limit.now = 32
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var removals atomic.Int64
		for i := range 100 {
			go again(ctx, s, Removal, types.UID(fmt.Sprint(i)), 100*time.Millisecond, &removals)
		}
		time.Sleep(time.Second)
		if n := removals.Load(); n < 150 {
			t.Errorf("%d removals in a second on a machine that has nothing else to do", n)
		}
		var starts []*Job // a start ends and another begins, all the time
		for range 15 {
			starts = append(starts, s.Begin(Start))
			if len(starts) > 1 {
				starts[len(starts)-2].Done()
			}
			time.Sleep(time.Second)
			if len(starts) == 1 {
				removals.Store(0) // the removals that were in flight have ended
			}
			if n := removals.Load(); len(starts) < 10 && n > 0 {
				t.Fatalf("%d removals ran beside %d starts", n, len(starts))
			}
		}
		if n := removals.Load(); n < 60 || n > 110 {
			t.Errorf("%d removals in five seconds beside a start, want 100: two at a time", n)
		}
		start := starts[len(starts)-1]
		start.Done()
		cancel()
		time.Sleep(time.Second)
	})
}

// A job that takes long stops counting as load, so a runtime that hangs does not block other jobs for ever.
func TestAJobThatHangsStopsCountingAsLoad(t *testing.T) {
	bubble(t, Config{Processors: 1, Most: 2}, func(t *testing.T, s *Scheduler) {
		for range 2 {
			if _, now := s.Enter(Periodic, "hangs", nil, nil); !now {
				t.Fatal("it waits")
			}
		}
		began := time.Now()
		j, err := s.Wait(t.Context(), Removal, "u")
		if err != nil || time.Since(began) > hold {
			t.Errorf("waited for %v: %v", time.Since(began), err)
		}
		j.Done()
	})
}

// Withdraw removes a waiting job: the Scheduler does not call its granted function, and starts the next job instead.
func TestWithdraw(t *testing.T) {
	bubble(t, Config{Processors: 1, Most: 1}, func(t *testing.T, s *Scheduler) {
		first, _ := s.Enter(Periodic, "a", nil, nil)
		second, now := s.Enter(Periodic, "b", nil, func() { t.Error("it has given up") })
		granted := false
		third, _ := s.Enter(Periodic, "c", nil, func() { granted = true })
		if now || !second.Withdraw() || second.Withdraw() {
			t.Error("the second is not withdrawn once")
		}
		first.Done()
		synctest.Wait()
		if !granted || third.Withdraw() {
			t.Error("the third is not granted")
		}
		third.Done()
		ctx, cancel := context.WithCancel(t.Context())
		holder := s.Begin(Start)
		keeper, _ := s.Enter(Periodic, "d", nil, nil)
		cancel()
		if _, err := s.Wait(ctx, Removal, "e"); err == nil {
			t.Error("it did not wait")
		}
		holder.Done()
		keeper.Done()
		if l := s.Load(); l.Flying != 0 || l.Waiting != 0 {
			t.Errorf("%+v", l)
		}
	})
}

// limitAfter repeats a hundred commands, each of which takes took(n) while n are in flight, and returns the limit.
func limitAfter(t *testing.T, s *Scheduler, d time.Duration, took func(n int) time.Duration) int {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for i := range 100 {
		go func() {
			var pace Pace
			for ctx.Err() == nil {
				turn := make(chan struct{})
				j, now := s.Enter(Periodic, types.UID(fmt.Sprint(i)), &pace, func() { close(turn) })
				if !now {
					<-turn
				}
				time.Sleep(took(s.Load().Flying))
				j.Done()
			}
		}()
	}
	<-ctx.Done()
	limit := s.Load().Limit
	time.Sleep(time.Hour)
	return limit
}

// The limit follows the durations of commands. It becomes large for commands that sleep, and about the number of processors for
// commands that compute.
func TestTheLimitFollowsWhatCommandsTake(t *testing.T) {
	bubble(t, Config{Processors: 2}, func(t *testing.T, s *Scheduler) {
		if got := limitAfter(t, s, time.Minute, func(int) time.Duration { return 900 * time.Millisecond }); got < 60 {
			t.Errorf("of commands that sleep: %d at once, of 100", got)
		}
	})
}

func TestTheLimitIsSmallForWhatComputes(t *testing.T) {
	bubble(t, Config{Processors: 2}, func(t *testing.T, s *Scheduler) {
		if got := limitAfter(t, s, 5*time.Minute, func(n int) time.Duration {
			return time.Duration(float64(50*time.Millisecond) * max(1, float64(n)/2))
		}); got > 10 {
			t.Errorf("of commands that compute: %d at once, on 2 processors", got)
		}
	})
}

func TestParseShares(t *testing.T) {
	t.Parallel()
	got, err := ParseShares(map[string]float64{"first": 0})
	want := DefaultShares()
	want[First] = 0
	if err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []map[string]float64{{"nobody": 1}, {"first": -1}, {"invalid": 1}} {
		if _, err := ParseShares(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
