package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A runtime that starts together with the agent is asked until it answers. If it answers only later, and has another cgroup driver than the
// configured one, the agent ends with an error.
func TestRuntimeThatAnswersLateAboutItsCgroupDriver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		up       time.Duration // when the runtime answers
		driver   string
		answered bool
		ends     bool // later ends with an error
	}{
		"at once":           {0, "systemd", true, false},
		"while it starts":   {3 * time.Second, "systemd", true, false},
		"reports no driver": {time.Second, "", true, false},
		"too late":          {time.Minute, "systemd", false, true},
		"late, the same":    {time.Minute, "cgroupfs", false, false},
		"never":             {24 * time.Hour, "systemd", false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ask := askDriver(func(context.Context) (string, error) {
				if time.Since(began) < c.up {
					return "", errors.New("connection refused")
				}
				return c.driver, nil
			})
			driver, answered := ask.soon(t.Context())
			if answered != c.answered || answered && driver != c.driver || time.Since(began) > max(askDriverFor, c.up+time.Second) && answered {
				t.Errorf("%s: driver %q, answered %v after %s", name, driver, answered, time.Since(began))
			}
			if answered {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := ask.later(ctx, "cgroupfs")
			if took := time.Since(began); c.ends != (err != nil) || err != nil && (took > c.up+askDriverLater || !strings.Contains(err.Error(), "its cgroup driver is systemd")) || err == nil && ctx.Err() == nil {
				t.Errorf("%s: later: %v after %s", name, err, took)
			}
		})
	}
}
