package fleet_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/agent/fleet"
)

// Each kind of expectation holds in the states in which it should, and in no other.
func TestExpectations(t *testing.T) {
	t.Parallel()
	s := fleet.Status{
		Nodes:  fleet.Nodes{Want: 10, Present: 10, Ready: 9, Crashed: 1},
		Pods:   fleet.Pods{Running: 4, Ready: 3, Pending: 1, Succeeded: 2, Failed: 1},
		Leases: fleet.Lateness{P50: time.Millisecond, P99: 1500 * time.Millisecond, Renewals: 3, Failed: 2},
	}
	whole := fleet.Status{Nodes: fleet.Nodes{Want: 2, Present: 2, Ready: 2}, Pods: fleet.Pods{Running: 5, Ready: 5}}
	done := fleet.Status{Pods: fleet.Pods{Succeeded: 3}}
	for _, c := range []struct {
		text   string
		s      *fleet.Status
		wanted int
		want   fleet.Outcome
	}{
		{"nodes=ready", &s, 0, fleet.Outcome{Now: "9 of 10"}},
		{"nodes=ready", &whole, 0, fleet.Outcome{Held: true, Now: "2 of 2"}},
		{"nodes=gone", &s, 0, fleet.Outcome{Now: "10 are left"}},
		{"nodes=gone", &done, 0, fleet.Outcome{Held: true, Now: "0 are left"}},
		{"pods=running", &s, 0, fleet.Outcome{Now: "4 of 8"}},
		{"pods=running", &whole, 5, fleet.Outcome{Held: true, Now: "5 of 5"}},
		{"pods=running", &whole, 6, fleet.Outcome{Now: "5 of 6"}},
		{"pods=running", &fleet.Status{}, 0, fleet.Outcome{Now: "0 of 0"}},
		{"pods=ready", &s, 0, fleet.Outcome{Now: "3 of 8"}},
		{"pods=ready", &whole, 0, fleet.Outcome{Held: true, Now: "5 of 5"}},
		{"pods=succeeded", &done, 3, fleet.Outcome{Held: true, Now: "3 of 3"}},
		{"pods=finished", &s, 0, fleet.Outcome{Now: "3 of 8"}},
		{"pods=finished", &done, 0, fleet.Outcome{Held: true, Now: "3 of 3"}},
		{"pods=gone", &done, 0, fleet.Outcome{Now: "3 are left"}},
		{"pods=gone", &fleet.Status{}, 7, fleet.Outcome{Held: true, Now: "0 are left"}},
		{"nodes.ready>=90%", &s, 0, fleet.Outcome{Held: true, Now: "9 of 10"}},
		{"nodes.ready>90%", &s, 0, fleet.Outcome{Now: "9 of 10"}},
		{"nodes.notReady=1", &s, 0, fleet.Outcome{Held: true, Now: "1"}},
		{"nodes.crashed != 1", &s, 0, fleet.Outcome{Now: "1"}},
		{"pods.running>=4", &s, 0, fleet.Outcome{Held: true, Now: "4"}},
		{"pods.running<4", &s, 0, fleet.Outcome{Now: "4"}},
		{"pods.running>=50%", &s, 9, fleet.Outcome{Now: "4 of 9"}},
		{"pods.all=8", &s, 0, fleet.Outcome{Held: true, Now: "8"}},
		{"leases.p99<=1s", &s, 0, fleet.Outcome{Now: "1.5s"}},
		{"leases.p50<=1s", &s, 0, fleet.Outcome{Held: true, Now: "1ms"}},
		{"leases.p99<=1s", &whole, 0, fleet.Outcome{Now: "unknown: no lease was renewed yet"}},
		{"leases.p50>=0s", &whole, 0, fleet.Outcome{Now: "unknown: no lease was renewed yet"}},
		{"leases.overdue<=1s", &whole, 0, fleet.Outcome{Held: true, Now: "0s"}},
		{"leases.failed=0", &s, 0, fleet.Outcome{Now: "2"}},
	} {
		e, err := fleet.ParseExpectation(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		c.want.Expect = c.text
		if diff := cmp.Diff(c.want, e.Check(c.s, c.wanted)); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

// A wrong expectation is an error that names what is possible.
func TestWrongExpectations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "use one of nodes=ready, ",
		"pods=happy":             "use one of nodes=ready, ",
		"cats.all=1":             `"cats" is unknown: use nodes, pods or leases`,
		"pods.happy=1":           "pods.happy is unknown: pods has running, ",
		"pods.all=many":          `"many" is no number`,
		"pods.all=NaN":           `"NaN" is no number`,
		"pods.all=-1":            `"-1" is no number`,
		"pods.all>=101%":         "from 0% to 100%",
		"leases.failed<=5%":      "is for nodes and pods",
		"leases.p99<=5":          `"5" is no duration`,
		strings.Repeat("x", 999): "at most 200 bytes",
	} {
		if _, err := fleet.ParseExpectation(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := fleet.ParseExpectations([]string{"nodes=ready", "a", "b"}); err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("several: %v", err)
	}
}

// Await returns when the expectations have held for long enough, and says what is missing when the time is over.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 2}}})
		await := func(hold time.Duration, texts ...string) ([]fleet.Outcome, error) {
			all, err := fleet.ParseExpectations(texts)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return b.fleet.Await(ctx, hold, all...)
		}
		if got, err := await(10*time.Second, "nodes=ready", "nodes.crashed=0"); err != nil || len(got) != 2 || !got[0].Held {
			t.Errorf("%+v, %v", got, err)
		}
		_, err := await(0, "nodes=ready", "pods=running")
		var unmet *fleet.Unmet
		if !errors.As(err, &unmet) || err.Error() != "not as expected: pods=running (now: 0 of 0)" {
			t.Errorf("without pods: %v", err)
		}
		if _, err := await(2*time.Minute, "nodes=ready"); err == nil || err.Error() != "the expectations hold, but not for 2m0s yet" {
			t.Errorf("a hold that is longer than the time: %v", err)
		}
		// A node that is not Ready for a while breaks the hold.
		if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultCrash, For: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := await(10*time.Second, "nodes.crashed=0"); err != nil || time.Since(began) < 30*time.Second {
			t.Errorf("after a crash: %v after %s", err, time.Since(began))
		}
		b.end(t)
	})
}
