package simcri

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Two pieces of work on two CPUs run at full speed, four take twice as long, and after one is canceled the others run faster.
func TestProcessorsAreShared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pieces, givenUp int
		want            time.Duration
	}{{1, 0, time.Second}, {2, 0, time.Second}, {4, 0, 2 * time.Second}, {4, 2, 1250 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			p := &processors{count: 2}
			began := time.Now()
			ended := make(chan time.Duration, c.pieces)
			for i := range c.pieces {
				ctx, cancel := context.WithCancel(t.Context())
				if i < c.givenUp {
					time.AfterFunc(500*time.Millisecond, cancel)
				}
				go func() {
					defer cancel()
					if err := p.spend(ctx, time.Second); (err != nil) != (i < c.givenUp) {
						t.Error(err)
					}
					ended <- time.Since(began)
				}()
			}
			var last time.Duration
			for range c.pieces {
				last = max(last, <-ended)
			}
			if d := (last - c.want).Abs(); d > time.Millisecond {
				t.Errorf("%d pieces, %d given up: %v, want %v", c.pieces, c.givenUp, last, c.want)
			}
		})
	}
	if err := (&processors{}).spend(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
}
