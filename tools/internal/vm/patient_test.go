package vm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPatientEndsAfterItsBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := Patient(t.Context(), 10*time.Second, "wait for the moon")
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it ended after %s", took)
		}
		if got := context.Cause(ctx).Error(); got != "wait for the moon: not in 10s" {
			t.Errorf("the cause is %q", got)
		}
	})
}

func TestAwaitSaysWhatItSawLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		err := Await(t.Context(), "a bus", 5*time.Second, time.Second, func(context.Context) (bool, string) { looks++; return false, "an empty road" })
		if err == nil || err.Error() != "wait for a bus: not in 5s; last seen: an empty road" {
			t.Errorf("the error is %v", err)
		}
		if looks < 5 || looks > 6 {
			t.Errorf("it looked %d times in 5 seconds, once a second", looks)
		}
		if err := Await(t.Context(), "a bus", time.Second, time.Second, func(context.Context) (bool, string) { return true, "" }); err != nil {
			t.Errorf("a bus that is there: %v", err)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the day is over"))
		if err := Await(gone, "a bus", time.Hour, time.Second, func(context.Context) (bool, string) { return false, "" }); err == nil || !strings.Contains(err.Error(), "the day is over") {
			t.Errorf("after the caller's end: %v", err)
		}
	})
}
