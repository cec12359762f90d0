package fleet

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// A lease has run out when this process has seen no change for the lease's duration, which its holder cannot make very short or very long.
func TestRanOut(t *testing.T) {
	t.Parallel()
	began := time.Now()
	lease := func(version, holder string, seconds int32) *coordinationv1.Lease {
		l := newLease("f", "l", leaseOfSlice)
		l.ResourceVersion = version
		hold(l, holder, began.Add(-time.Hour)) // the clock of the holder does not matter
		l.Spec.LeaseDurationSeconds = &seconds
		return l
	}
	for _, c := range []struct {
		name     string
		lease    *coordinationv1.Lease
		valid    time.Duration // after began
		expected bool
	}{
		{"just seen", lease("1", "a", 15), 0, false},
		{"almost", lease("1", "a", 15), 15*time.Second - 1, false},
		{"run out", lease("1", "a", 15), 15 * time.Second, true},
		{"a duration of 0", lease("1", "a", 0), 14 * time.Second, false},
		{"a negative duration", lease("1", "a", -1<<31), 15 * time.Second, true},
		{"a longer duration", lease("1", "a", 60), 59 * time.Second, false},
		{"a very long duration", lease("1", "a", 1<<31-1), longestDuration, true},
		{"released", lease("1", "", 15), 0, true},
	} {
		s := sightings{}
		all := map[string]*coordinationv1.Lease{"l": c.lease}
		s.note(all, began)
		s.note(all, began.Add(c.valid)) // seen again, without a change
		if got := s.ranOut(c.lease, began.Add(c.valid)); got != c.expected {
			t.Errorf("%s: ran out: %t", c.name, got)
		}
	}
	s := sightings{}
	s.note(map[string]*coordinationv1.Lease{"l": lease("1", "a", 15)}, began)
	renewed := lease("2", "a", 15)
	s.note(map[string]*coordinationv1.Lease{"l": renewed}, began.Add(10*time.Second))
	if s.ranOut(renewed, began.Add(24*time.Second)) || !s.ranOut(renewed, began.Add(25*time.Second)) || !s["l"].changed {
		t.Error("a renewal does not count")
	}
}

// The annotations of the lease of the fleet may be changed by other users, so everything in them is checked.
func TestCountsOfALease(t *testing.T) {
	t.Parallel()
	groups := []Group{{Name: "a"}, {Name: "b"}}
	for text, want := range map[string]string{
		"":                            "[3 4]",
		"{}":                          "[3 4]",
		`{"b":7}`:                     "[3 7]",
		`{"a":0,"b":1,"other":99}`:    "[0 1]",
		`{"a":-1}`:                    "-1 nodes: use 0 to 100000",
		`{"a":100001}`:                "100001 nodes",
		`{"a":60000,"b":60000}`:       "120000 nodes: at most",
		`{"a":1e99}`:                  "cannot unmarshal",
		`[`:                           "unexpected end of JSON",
		strings.Repeat(" ", 65<<10):   "bytes, more than",
		`{"a":{"a":{"a":{"a":[[]]}}}`: "unexpected end of JSON",
	} {
		l := newLease("f", "fleet.f", leaseOfFleet)
		l.Annotations = map[string]string{annotationCounts: text}
		got, err := countsOf(l, groups, []int{3, 4})
		said := fmt.Sprint(got)
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%.40s: %s, want %s", text, said, want)
		}
	}
	l := newLease("f", "fleet.f", leaseOfFleet)
	l.Annotations = map[string]string{annotationScaled: "many"}
	if err := setCounts(l, groups, []int{5, 6}); err != nil || scaled(l) != 1 {
		t.Errorf("%v, %+v", err, l.Annotations)
	}
	if got, err := countsOf(l, groups, []int{3, 4}); err != nil || fmt.Sprint(got) != "[5 6]" {
		t.Errorf("%v, %v", got, err)
	}
}

// A permit ends by itself, without a timer.
func TestPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &permit{base: time.Now()}
		if !p.over() {
			t.Error("a new permit is valid")
		}
		p.grant(time.Now().Add(shardFence))
		time.Sleep(shardFence - 1)
		if p.over() {
			t.Error("over too early")
		}
		time.Sleep(time.Nanosecond)
		if !p.over() {
			t.Error("not over")
		}
		p.grant(time.Now().Add(shardFence))
		p.end()
		if !p.over() {
			t.Error("not ended")
		}
	})
}

// The times fit each other: the nodes of a process end well before another may take them, and a renewal is tried more than once before.
func TestTimesOfShards(t *testing.T) {
	t.Parallel()
	if shardFence+4*time.Second > shardDuration || shardRenew+2*(shardTick+shardRequest) > shardFence+4*time.Second || fencePace > time.Second {
		t.Error("see the constants in shardclaims.go")
	}
	if name := sliceLease(strings.Repeat("f", 40), mostSlices-1); len(name) > 63 || name != "fleet."+strings.Repeat("f", 40)+".slice.255" {
		t.Error(name)
	}
}
