package objects

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// beforeJump returns the time at as it would be if the clock had gone ahead by jump since then, without that this time had passed: the machine slept, or
// somebody has set the clock. A time.Time has both what the clock showed, in seconds from bit 30 on, and the time that passed.
func beforeJump(t *testing.T, at time.Time, jump time.Duration) time.Time {
	t.Helper()
	before := at
	*(*uint64)(unsafe.Pointer(&before)) -= uint64(jump/time.Second) << 30
	if got := at.Round(0).Sub(before.Round(0)); got != jump || !before.Equal(at.Round(0).Add(-jump)) || before.Sub(at) != 0 {
		t.Fatalf("a time.Time is not made as this test believes: its clock has moved by %v", got)
	}
	return before
}

// A token that has expired while the machine slept, or that was issued in what is the future since the clock was set back, is renewed at once: pods would use it
// until the time that passed without the sleep is over. Not in a bubble, in which no time passes that the clock does not show.
func TestTokenIsRenewedAfterAJumpOfTheClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		jump  time.Duration
		renew bool
	}{
		"the machine slept for two hours":     {2 * time.Hour, true},
		"the machine slept for five minutes":  {5 * time.Minute, false},
		"the clock was set back by two hours": {-2 * time.Hour, true},
		"the clock was set back a little":     {-20 * time.Second, false},
		"nothing happened":                    {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, told := &issuer{valid: time.Hour}, 0
			client := fake.NewClientset()
			client.PrependReactor("create", "serviceaccounts", i.react)
			tokens := newTokens(Config{API: apiOf(client), Log: slog.New(slog.DiscardHandler), Changed: func() {}, Expired: func(*v1.Pod, string, time.Time) {}})
			tokens.notify = func(types.UID) { told++ }
			p := podWith("1")
			tokens.track(p)
			read := func() string {
				t.Helper()
				got, _, err := tokens.get(t.Context(), p, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				return got[:len("token-1")]
			}
			if got := read(); got != "token-1" {
				t.Fatal(got)
			}
			tokens.since = beforeJump(t, time.Now(), c.jump)
			tokens.pods[p.UID].renew = beforeJump(t, tokens.pods[p.UID].renew, c.jump)
			if wait := tokens.round(t.Context()); wait > time.Minute {
				t.Errorf("the node looks again in %v: it would not notice a jump before", wait)
			}
			if (told > 0) != c.renew {
				t.Errorf("the pod was told %d times to read its token", told)
			}
			tokens.round(t.Context())
			if told > 1 {
				t.Errorf("the pod was told %d times", told)
			}
			i.fail(errors.New("the API server is away"))
			if got := read(); got != "token-1" {
				t.Errorf("while it cannot be renewed: %s", got)
			}
			asked := len(i.asked)
			if got := read(); got != "token-1" || len(i.asked) != asked {
				t.Errorf("soon after a try: %s, and %d more requests", got, len(i.asked)-asked)
			}
			if (asked > 1) != c.renew {
				t.Errorf("%d requests for tokens", asked)
			}
		})
	}
}

// A token is renewed by the next read after a jump, and only once.
func TestTokenIsRenewedOnceAfterAJump(t *testing.T) {
	t.Parallel()
	i := &issuer{valid: time.Hour}
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", i.react)
	tokens := newTokens(Config{API: apiOf(client), Log: slog.New(slog.DiscardHandler), Changed: func() {}})
	p := podWith("1")
	tokens.track(p)
	for n, want := range []string{"token-1", "token-2", "token-2"} {
		got, _, err := tokens.get(context.Background(), p, "", nil)
		if err != nil || got[:len(want)] != want {
			t.Errorf("read %d: %s, %v, want %s", n, got, err, want)
		}
		if n == 0 {
			tokens.pods[p.UID].renew = beforeJump(t, tokens.pods[p.UID].renew, 3*time.Hour)
		}
	}
}
