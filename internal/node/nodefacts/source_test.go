package nodefacts

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// slow is a machine that takes a minute for every answer.
type slow struct {
	Fixed
	network atomic.Int32
}

const aMinute = time.Minute

func (s *slow) Facts() (nodestatus.Machine, error) { time.Sleep(aMinute); return s.Fixed.Facts() }
func (s *slow) EphemeralStorage() int64            { time.Sleep(aMinute); return s.Fixed.EphemeralStorage() }
func (s *slow) Network() nodestatus.Network {
	s.network.Add(1)
	time.Sleep(aMinute)
	return s.Fixed.Network()
}

// Admission reads the Node and the machine under a lock. It gets the last known values at once, while a disk or a name server is
// slow. If a reader waited for the lock, the clock of the synctest bubble would stop, and the test would fail.
func TestKnownFactsAreReadWhileTheMachineIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &slow{Fixed: Fixed{Machine: nodestatus.Machine{CPUs: 4, MemoryBytes: 1 << 30}, Address: netip.MustParseAddr("192.0.2.1")}}
		s := New(Config{Settings: nodestatus.Settings{Name: "n"}, Machine: m, Runtime: NewRuntime(nil, func() {}, slog.New(slog.DiscardHandler))})
		ask := func() {
			t.Helper()
			began := time.Now()
			s.Node()
			s.Machine()
			if time.Since(began) != 0 {
				t.Errorf("the answer took %v", time.Since(began))
			}
		}
		for range 3 {
			go s.Refresh(t.Context())
		}
		for range 50 {
			time.Sleep(5 * time.Second)
			ask()
		}
		if s.Node() == nil || m.network.Load() != 1 {
			t.Fatalf("node %v, measured %d times for three concurrent callers", s.Node(), m.network.Load())
		}
		old := s.Node()
		go s.Refresh(t.Context())
		synctest.Wait()
		began := time.Now()
		s.Refresh(t.Context()) // another goroutine measures, and this call returns with the last Node
		if time.Since(began) != 0 || s.Node() != old {
			t.Errorf("waited %v for another's measurement", time.Since(began))
		}
		time.Sleep(5 * aMinute)
		if s.Node() == old {
			t.Error("the Node is never measured again")
		}
	})
}

// A standalone node is built anew again and again. A condition keeps the time since which it has its status.
func TestConditionsKeepTheirTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var problems []string
		s := New(Config{
			Settings: nodestatus.Settings{Name: "n"}, Machine: &Fixed{}, Runtime: NewRuntime(nil, func() {}, slog.New(slog.DiscardHandler)),
			Problems: func() []string { return problems },
			Pressure: func(context.Context) pressure.Result {
				return pressure.Result{Memory: pressure.Status(1 + len(problems)), Disk: pressure.False, PID: pressure.False}
			},
		})
		since := func(kind v1.NodeConditionType) time.Duration {
			s.Refresh(t.Context())
			for _, c := range s.Node().Status.Conditions {
				if c.Type == kind {
					return time.Since(c.LastTransitionTime.Time)
				}
			}
			t.Fatalf("the node has no condition %s", kind)
			return 0
		}
		since(v1.NodeMemoryPressure)
		time.Sleep(time.Hour)
		if m, d := since(v1.NodeMemoryPressure), since(v1.NodeDiskPressure); m != time.Hour || d != time.Hour {
			t.Errorf("after an hour, the conditions have their status since %s and %s", m, d)
		}
		problems = []string{"one"} // now the memory is short
		time.Sleep(time.Hour)
		if m, d := since(v1.NodeMemoryPressure), since(v1.NodeDiskPressure); m != 0 || d != 2*time.Hour {
			t.Errorf("after a change, the conditions have their status since %s and %s", m, d)
		}
	})
}

// A node at rest computes its status only when something has changed: a measurement, or the settings. Once the API has a Node, the Source
// keeps none of its own.
func TestASettledNodeIsNotComputed(t *testing.T) {
	t.Parallel()
	var problems []string
	s := New(Config{
		Settings: nodestatus.Settings{Name: "n", MaxPods: 10}, Machine: &Fixed{Machine: nodestatus.Machine{CPUs: 4, MemoryBytes: 1 << 30}, Address: netip.MustParseAddr("192.0.2.1")},
		Runtime: NewRuntime(nil, func() {}, slog.New(slog.DiscardHandler)), Problems: func() []string { return problems },
	})
	node := s.Initial(t.Context()).Node
	if s.Node() != node {
		t.Error("the Node that was built is not the one of admission")
	}
	computed := func(when string, settled, want bool) {
		t.Helper()
		if got := s.Update(t.Context(), node, settled).Node != nil; got != want {
			t.Errorf("%s: computed %v, want %v", when, got, want)
		}
	}
	computed("at first", true, true) // nothing was computed before
	if s.Node() != nil {
		t.Error("the Node that was built is kept, although the API has one")
	}
	computed("nothing has changed", true, false)
	computed("the Node in the API is another one, or a report is due", false, true)
	computed("nothing has changed again", true, false)
	problems = []string{"one"}
	computed("a problem", true, true)
	computed("the same problem", true, false)
	s.SetSettings(nodestatus.Settings{Name: "n", MaxPods: 20})
	computed("other settings", true, true)
	if s.Refresh(t.Context()); s.Node() == nil {
		t.Error("Refresh builds no Node")
	}
}
