package identity

import (
	"context"
	"crypto/x509"
	"testing"
	"testing/synctest"
	"time"
)

// "kubelet will ... request a new certificate as the expiration approaches": between 70 and 90 % of its life.
func TestRenewalTime(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cert := &x509.Certificate{NotBefore: from, NotAfter: from.Add(1000 * time.Hour)}
	seen := map[time.Time]bool{}
	for range 100 {
		at := renewalTime(cert)
		if life := at.Sub(from); life < 700*time.Hour || life > 900*time.Hour {
			t.Fatalf("renews after %s of 1000 h", life)
		}
		seen[at] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different times of 100: nodes would come together", len(seen))
	}
}

func TestSleepUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if !sleepUntil(t.Context(), begin.Add(300*24*time.Hour)) || time.Since(begin) != 300*24*time.Hour {
			t.Errorf("woke after %s", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if sleepUntil(ctx, time.Now().Add(time.Hour)) {
			t.Error("slept on when ctx had ended")
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff(time.Second, 30*time.Second)
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			begin := time.Now()
			b.wait(t.Context())
			if got := time.Since(begin); got < want*time.Second || got > want*time.Second*6/5 {
				t.Errorf("paused %s, want %d s and up to a fifth more", got, want)
			}
		}
	})
}
