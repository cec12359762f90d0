package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A report about a process that the kernel killed waits until an inspection shows the process's container, at most for a limited time.
func TestAKillWaitsForTheNameOfItsContainer(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ known, ends, want time.Duration }{
		"at once":                    {0, time.Hour, 0},
		"with the next inspection":   {time.Second, time.Hour, time.Second},
		"never":                      {time.Hour, time.Hour, nameWithin},
		"not before the agent stops": {time.Hour, 2 * time.Second, 2 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began := time.Now()
				got := awaitName(ctx, func() string {
					if time.Since(began) < c.known {
						return ""
					}
					return "main"
				})
				if found := c.known <= c.want; (got == "main") != found || time.Since(began) != c.want {
					t.Errorf("%q after %s, want after %s", got, time.Since(began), c.want)
				}
			})
		})
	}
}
