package identity

import (
	"context"
	"crypto/x509"
	"math/rand/v2"
	"time"
)

// renewalTime is when to ask for the next certificate: after 70 to 90 % of the life of this one, by chance, so that
// nodes that came together do not come back together. Its life begins when we got it: signers date certificates back
// (by 5 minutes in Kubernetes), which would make a short one look old at birth and be renewed without end.
func renewalTime(cert *x509.Certificate, got time.Time) time.Time {
	from := cert.NotBefore
	if got.After(from) && got.Before(cert.NotAfter) {
		from = got
	}
	life := cert.NotAfter.Sub(from)
	return from.Add(time.Duration((0.7 + 0.2*rand.Float64()) * float64(life)))
}

// longestSleep bounds one timer: a timer does not count while a machine sleeps, and the clock may be set.
const longestSleep = 5 * time.Minute

// sleepUntil waits for a time of the wall clock; false: ctx ended.
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
