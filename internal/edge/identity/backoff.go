package identity

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is a pause that doubles, with a random part, so that many nodes do not send requests at once.
type backoff struct{ next, most time.Duration }

func newBackoff(first, most time.Duration) *backoff { return &backoff{next: first, most: most} }

// wait pauses. It returns false if ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.next + rand.N(b.next/5+1)
	b.next = min(2*b.next, b.most)
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// repeats limits repeated log messages: a new message is logged at once, and the same message again only once per interval.
type repeats struct {
	every time.Duration
	last  string
	at    time.Time
}

func newRepeats(every time.Duration) *repeats { return &repeats{every: every} }

func (r *repeats) again(message string) bool {
	if message == r.last && time.Since(r.at) < r.every {
		return false
	}
	r.last, r.at = message, time.Now()
	return true
}
