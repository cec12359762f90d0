package cgroup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// If systemd hangs, the call fails after a while. It holds no lock while it waits, so other calls continue. The number of
// goroutines stays bounded.
func TestSystemdThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Driver: DriverSystemd, PerQOS: true})
		release := make(chan struct{})
		hangs := func() error { <-release; return nil }
		began := time.Now()
		if err := c.answered(t.Context(), hangs); !errors.Is(err, ErrSystemd) || time.Since(began) != answerWithin {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if !c.mu.TryLock() {
			t.Fatal("the lock is held while systemd hangs")
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 * maxAsking {
			if err := c.answered(ctx, hangs); err == nil {
				t.Fatal("a call that hangs has succeeded")
			}
		}
		if c.asking != maxAsking {
			t.Errorf("%d calls are in flight, want %d", c.asking, maxAsking)
		}
		if err := c.answered(t.Context(), func() error { t.Error("one call too many"); return nil }); !errors.Is(err, ErrSystemd) {
			t.Errorf("error %v", err)
		}
		close(release)
		synctest.Wait()
		if err := c.answered(t.Context(), func() error { return nil }); err != nil || c.asking != 0 {
			t.Errorf("systemd answers again: %v, %d in flight", err, c.asking)
		}
	})
}

// After a failed write, UpdateQOS writes the weight of the burstable class again, even if the sum of the requests has not changed.
func TestWeightThatFailedIsUnknown(t *testing.T) {
	t.Parallel()
	c := New(Config{})
	shares := func(n int64) classLimits { return classLimits{shares: n} }
	c.swapClasses(shares(100), shares(100))
	if !c.swapClasses(classLimits{}, shares(100)) || c.swapClasses(classLimits{}, shares(200)) || c.swapClasses(classLimits{}, shares(100)) {
		t.Error("a weight counts as written although the write failed")
	}
}
