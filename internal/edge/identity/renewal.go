package identity

import (
	"context"
	"crypto/x509"
	"math/rand/v2"
	"time"
)

// renewalTime returns when to request the next certificate: at a random time after 70 to 90 % of the life of this one, so that nodes that
// joined together do not renew together. Its life begins when the node received it, not at its NotBefore: signers date certificates back
// (by 5 minutes in Kubernetes), so a short-lived certificate would be due for renewal from the start, and would be renewed endlessly.
func renewalTime(cert *x509.Certificate, got time.Time) time.Time {
	from := cert.NotBefore
	if got.After(from) && got.Before(cert.NotAfter) {
		from = got
	}
	life := cert.NotAfter.Sub(from)
	return from.Add(time.Duration((0.7 + 0.2*rand.Float64()) * float64(life)))
}

// longestSleep bounds one timer, because a timer does not run while a machine sleeps, and somebody may set the clock.
const longestSleep = 5 * time.Minute

// sleepUntil waits for a time of the wall clock. It returns false if ctx ended.
func sleepUntil(ctx context.Context, t time.Time) bool {
	for {
		left := time.Until(t.Round(0))
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !sleep(ctx, min(left, longestSleep)) {
			return false
		}
	}
}
