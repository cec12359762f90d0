package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"time"
)

// renew requests the next client certificate whenever the one in use is due, and calls use with it, until ctx ends. current returns the
// certificate in use, and when the node got it.
func renew(ctx context.Context, req *request, current func() (*x509.Certificate, time.Time), use func(*tls.Certificate)) error {
	for {
		cert, got := current()
		if !sleepUntil(ctx, renewalTime(cert, got), req.clock) {
			return nil
		}
		if now, _ := current(); now != cert {
			continue // somebody replaced the certificate meanwhile
		}
		req.log.Info("Renewing the node's client certificate", "ends", stamp(cert.NotAfter))
		pair, err := req.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("renew client certificate: %w", err)
		}
		use(pair)
		req.log.Info("The node's client certificate is renewed", "ends", stamp(pair.Leaf.NotAfter))
	}
}

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

// sleepUntil waits until the clock now shows the time t. It returns false if ctx ended.
func sleepUntil(ctx context.Context, t time.Time, now func() time.Time) bool {
	for {
		left := t.Round(0).Sub(now())
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !sleep(ctx, min(left, longestSleep)) {
			return false
		}
	}
}
