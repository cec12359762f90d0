package shutdown_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/shutdown"
)

func pod(name string, priority int32, grace int64) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = types.UID(name), &priority, &grace
	return p
}

func text(groups []shutdown.Group) string {
	var out []string
	for _, g := range groups {
		line := fmt.Sprintf("%d for %s:", g.Priority, g.Wait)
		for _, e := range g.Pods {
			line += fmt.Sprintf(" %s(%s)", e.UID, e.Grace)
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

const s = time.Second

// TestGroups divides pods into groups with several policies, one of them from the Kubernetes documentation. It checks which pods are in
// each group, how long the group may take, and the grace period of each pod.
func TestGroups(t *testing.T) {
	t.Parallel()
	documented := []shutdown.Period{{100000, 10 * s}, {10000, 180 * s}, {1000, 120 * s}, {0, 60 * s}}
	bare := &v1.Pod{}
	bare.UID = "bare"
	for _, c := range []struct {
		name            string
		by              []shutdown.Period
		whole, critical time.Duration
		pods            []*v1.Pod
		want            string
	}{
		{"regular pods end before critical ones", nil, 30 * s, 10 * s,
			[]*v1.Pod{pod("critical", 2_000_000_000, 30), pod("node-critical", 2_000_001_000, 5), pod("regular", 0, 30), pod("high", 1_999_999_999, 3)},
			"0 for 20s: regular(20s) high(3s); 2000000000 for 10s: critical(10s) node-critical(5s)"},
		{"a group without pods is not waited for", nil, 30 * s, 10 * s, []*v1.Pod{pod("c", 2_000_000_000, 1)}, "2000000000 for 10s: c(1s)"},
		{"a priority counts up to the next period", documented, 0, 0,
			[]*v1.Pod{pod("a", 100000, 1), pod("b", 99999, 1), pod("c", 10000, 1), pod("d", 9999, 1), pod("e", 1000, 1), pod("f", 999, 1), pod("g", 0, 1)},
			"0 for 1m0s: f(1s) g(1s); 1000 for 2m0s: d(1s) e(1s); 10000 for 3m0s: b(1s) c(1s); 100000 for 10s: a(1s)"},
		{"a priority below all periods belongs to the first", documented, 0, 0, []*v1.Pod{pod("low", -5, 90)}, "0 for 1m0s: low(1m0s)"},
		{"a pod that says nothing gets the whole period", nil, 30 * s, 0, []*v1.Pod{bare}, "0 for 30s: bare(30s)"},
		{"a grace period of 0 is kept", nil, 30 * s, 0, []*v1.Pod{pod("now", 0, 0)}, "0 for 30s: now(0s)"},
		{"a negative grace period is nonsense", nil, 30 * s, 0, []*v1.Pod{pod("bad", 0, -1)}, "0 for 30s: bad(30s)"},
		{"no period", nil, 0, 0, []*v1.Pod{pod("x", 0, 1)}, ""},
	} {
		if got := text(shutdown.New(c.by, c.whole, c.critical).Groups(c.pods)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		by              []shutdown.Period
		whole, critical time.Duration
		want            time.Duration
	}{
		{nil, 30 * s, 10 * s, 30 * s},
		{nil, 1500 * time.Millisecond, 600 * time.Millisecond, 0},
		{nil, 30 * s, 40 * s, 0},
		{nil, 0, 0, 0},
		{[]shutdown.Period{{5, 7 * s}, {1, 3 * s}}, 30 * s, 10 * s, 10 * s},
	} {
		if got := shutdown.New(c.by, c.whole, c.critical).Whole(); got != c.want {
			t.Errorf("%v %s %s: %s, want %s", c.by, c.whole, c.critical, got, c.want)
		}
	}
}

// New sorts the periods. The test checks that it sorts a copy and does not modify the caller's list.
func TestTheConfigurationIsNotSorted(t *testing.T) {
	t.Parallel()
	by := []shutdown.Period{{5, 7 * s}, {1, 3 * s}}
	shutdown.New(by, 0, 0)
	if by[0].Priority != 5 {
		t.Error("the configuration is sorted in place")
	}
}
