package cgroup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A systemd that hangs fails the call after a while, and holds no lock meanwhile: what needs no systemd goes on. It does not
// gather goroutines without end.
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
			t.Errorf("%d calls are under way, want %d", c.asking, maxAsking)
		}
		if err := c.answered(t.Context(), func() error { t.Error("one call too many"); return nil }); !errors.Is(err, ErrSystemd) {
			t.Errorf("error %v", err)
		}
		close(release)
		synctest.Wait()
		if err := c.answered(t.Context(), func() error { return nil }); err != nil || c.asking != 0 {
			t.Errorf("systemd answers again: %v, %d under way", err, c.asking)
		}
	})
}

// The weight of a class that could not be written is written again, even when it is what it was before.
func TestWeightThatFailedIsUnknown(t *testing.T) {
	t.Parallel()
	c := New(Config{})
	c.swapBurstable(100, 100)
	if !c.swapBurstable(0, 100) || c.swapBurstable(0, 200) || c.swapBurstable(0, 100) {
		t.Error("a weight counts as written that may not be")
	}
}
