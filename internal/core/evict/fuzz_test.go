package evict_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// feed makes values out of the fuzzer's bytes: rest holds the bytes that are not used yet.
type feed struct{ rest []byte }

func (f *feed) n(below int) int {
	if len(f.rest) == 0 {
		return 0
	}
	b := f.rest[0]
	f.rest = f.rest[1:]
	return int(b) % below
}

// odd returns an amount that is likely to make a sum overflow or become negative.
func (f *feed) odd() int64 {
	return []int64{0, 1, 50, 99, 100, 1 << 20, 1 << 40, 1<<62 + 1, 1<<63 - 1, -1, -1 << 63}[f.n(11)]
}

// signals returns every signal that a threshold can have.
func signals() []pressure.Signal {
	return []pressure.Signal{
		pressure.MemoryAvailable, pressure.AllocatableMemoryAvailable, pressure.NodefsAvailable, pressure.NodefsInodesFree,
		pressure.ImagefsAvailable, pressure.ImagefsInodesFree, pressure.ContainerfsAvailable, pressure.ContainerfsInodesFree, pressure.PIDAvailable,
	}
}

// world is a simulated node whose state the fuzzer chooses.
type world struct {
	*feed
	t       *testing.T
	policy  evict.Policy
	layout  evict.Layout
	signals pressure.Signals
	pods    []evict.Pod
	state   evict.State
	tried   *evict.Tried
	removed time.Time
	victim  types.UID
	evicted time.Time
	grace   time.Duration
	soft    bool // the pod was evicted for a soft threshold
	memory  bool // the pod was evicted for memory
	ended   bool
	now     time.Time
}

func (w *world) build() {
	all := signals()
	for range w.n(5) {
		th := pressure.Threshold{Signal: all[w.n(len(all))], Grace: time.Duration(w.n(3)) * 30 * time.Second}
		if w.n(2) == 0 {
			th.Value.Fraction = float64(1+w.n(99)) / 100
		} else {
			th.Value.Quantity = resource.NewQuantity(max(1, w.odd()), resource.BinarySI)
		}
		if w.n(3) == 0 {
			th.MinReclaim = &pressure.Value{Fraction: float64(w.n(100)) / 100}
		}
		w.policy.Thresholds = append(w.policy.Thresholds, th)
	}
	w.policy.TransitionPeriod, w.policy.MaxPodGrace = time.Duration(w.n(3))*time.Minute, time.Duration(w.n(3))*20*time.Second
	w.layout = evict.Layout{ImagesApart: w.n(2) == 0, LayersWithPods: w.n(2) == 0}
	for i := range w.n(6) {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), UID: types.UID(rune('a' + i)), Annotations: map[string]string{}}}
		if n := w.n(5); n > 0 {
			p.Spec.Priority = new([]int32{-5, 5, 1_999_999_999, 2_000_000_000}[n-1])
		}
		if w.n(6) == 0 {
			p.Annotations["kubernetes.io/config.source"] = "file"
		}
		if w.n(3) == 0 {
			p.Spec.TerminationGracePeriodSeconds = new(w.odd())
		}
		p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(w.odd(), resource.BinarySI)}}}}
		one := evict.Pod{Pod: p}
		if w.n(4) > 0 {
			d := func() evict.Disk { return evict.Disk{Bytes: uint64(w.odd()), Inodes: uint64(w.odd())} }
			one.Usage = &evict.Usage{Memory: uint64(w.odd()), Processes: uint64(w.odd()), Volumes: d(), Logs: d(), Layers: d(), NoLayers: w.n(8) == 0, NoVolumes: w.n(8) == 0}
			one.Usage.Evades = one.Usage.NoVolumes && w.n(2) == 0
			one.Usage.Containers = []evict.ContainerUsage{{Name: "c", Memory: new(one.Usage.Memory), Disk: new(one.Usage.Logs.Bytes)}, {Name: "other"}}
		}
		if w.n(8) == 0 {
			one.EndsBy = w.now.Add(time.Duration(w.n(60)) * time.Second)
		}
		w.pods = append(w.pods, one)
	}
}

// round changes the signals and the pods, calls Decide until the plan needs no more from the agent, and checks the invariants of doc.go.
func (w *world) round() {
	for _, s := range signals() {
		switch w.n(4) {
		case 0:
			w.signals[s] = pressure.Observation{Available: w.odd(), Capacity: max(0, w.odd())}
		case 1:
			delete(w.signals, s)
		}
	}
	if w.victim != "" && w.n(3) == 0 {
		w.pods = slices.DeleteFunc(w.pods, func(p evict.Pod) bool { return p.Pod.UID == w.victim })
		w.ended = true
	}
	if w.n(16) == 0 {
		w.state, w.tried, w.victim, w.ended = evict.State{}, nil, "", false
	}
	var measured evict.Use
	busy := w.n(4) == 0
	asked := map[string]int{}
	for step := 0; ; step++ {
		if step > 7*len(signals()) {
			w.t.Fatal("the decision of one round does not come to an end")
		}
		plan := evict.Decide(evict.Input{
			Policy: &w.policy, Signals: w.signals, Layout: w.layout, Pods: w.pods, Measured: measured, Busy: busy, Tried: w.tried, Removed: w.removed, VictimEnded: gone(w.pods, w.state.Victim()), Previous: w.state, Now: w.now,
		})
		w.check(&plan)
		if v := w.state.Victim(); v != "" && v != plan.State.Victim() {
			w.victim, w.ended = "", false
		}
		if plan.Forget {
			w.tried = nil
		}
		w.state = plan.State
		switch {
		case plan.Reclaim != 0:
			if busy {
				w.t.Fatal("something is to be removed while something is removed")
			}
			signal := string(plan.For.Threshold.Signal)
			if asked[signal]++; asked[signal] > 1 && (w.tried == nil || !w.tried.More) || asked[signal] > 5 {
				w.t.Fatalf("%s is reclaimed %d times in one round", signal, asked[signal])
			}
			removed := &evict.Tried{Images: w.n(3), Containers: w.n(3), More: w.n(3) == 0}
			if removed.Images+removed.Containers > 0 {
				w.removed = w.now
			}
			w.tried = removed.After(w.tried)
		case plan.Measure != 0:
			if measured&plan.Measure != 0 {
				w.t.Fatal("the usage is asked for twice in one round")
			}
			measured |= plan.Measure
		default:
			if plan.Evict != nil {
				w.victim, w.ended, w.evicted, w.grace = plan.Evict.Pod.UID, false, w.now, plan.Evict.Grace
				w.soft = !plan.For.Threshold.Hard()
				w.memory = plan.For.Threshold.Signal.Resource() == v1.ResourceMemory
			}
			w.now = w.now.Add(time.Duration(w.n(40)) * 500 * time.Millisecond)
			return
		}
	}
}

func (w *world) check(p *evict.Plan) {
	if n := btoi(p.Reclaim != 0) + btoi(p.Measure != 0) + btoi(p.Evict != nil); n > 1 {
		w.t.Fatal("a plan wants more than one thing")
	}
	if (p.Reclaim != 0 || p.Measure != 0 || p.Evict != nil) && p.Pause != evict.NoPause {
		w.t.Fatalf("a plan acts and pauses (%d)", p.Pause)
	}
	if d := evict.Interval(&w.policy, w.signals); d <= 0 || d > 10*time.Second {
		w.t.Fatalf("interval %s", d)
	}
	if !p.WakeAt.IsZero() && p.WakeAt.Before(w.now) {
		w.t.Fatalf("wakes %s ago", w.now.Sub(p.WakeAt))
	}
	if !p.Forget && !slices.ContainsFunc(p.Pressure.Met, func(c pressure.Crossing) bool { return c.Due && c.Threshold.Signal.Condition() == v1.NodeDiskPressure }) {
		w.t.Fatal("what was removed is remembered although no disk is short")
	}
	e := p.Evict
	if e == nil {
		return
	}
	if strings.Contains(e.Why, "remove") && p.For.Threshold.Signal.Condition() != v1.NodeDiskPressure {
		w.t.Fatalf("the reason of an eviction for %s says what was removed: %s", p.For.Threshold, e.Why)
	}
	seen, ok := w.signals[p.For.Threshold.Signal]
	limit := p.For.Threshold.Wanted(seen.Capacity)
	switch {
	case !ok || seen.Capacity <= 0 || seen.Available >= limit:
		w.t.Fatalf("evicts for %s, which is %+v", p.For.Threshold, seen)
	case !p.For.Due:
		w.t.Fatalf("evicts for %s before its grace period is over", p.For.Threshold)
	case p.For.Threshold.Signal.Resource() == v1.ResourceEphemeralStorage && w.now.Before(w.removed.Add(2*time.Second)):
		w.t.Fatal("evicts a pod although the files of what was removed may not have been deleted yet")
	case crispec.IsCritical(e.Pod):
		w.t.Fatalf("evicts a critical pod")
	case w.victim != "" && !w.ended && w.now.Before(w.evicted.Add(w.grace+30*time.Second)) && !(w.soft && p.For.Threshold.Hard()) && !w.presses(p):
		w.t.Fatalf("evicts a second pod before the first has ended")
	case e.Grace < 0 || e.Grace > w.policy.MaxPodGrace:
		w.t.Fatalf("grace period %s", e.Grace)
	case e.AtOnce != (p.For.Threshold.Hard() && p.For.Threshold.Signal.Resource() == v1.ResourceMemory):
		w.t.Fatalf("for %s a pod is killed at once: %t", p.For.Threshold, e.AtOnce)
	case !strings.HasPrefix(e.Message, "The node was low on resource: "):
		w.t.Fatalf("message %q", e.Message)
	}
}

// presses reports whether a plan evicts a pod for a hard threshold of memory, and the last pod was evicted for something else.
func (w *world) presses(p *evict.Plan) bool {
	return p.For.Threshold.Hard() && p.For.Threshold.Signal.Resource() == v1.ResourceMemory && !w.memory
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// play simulates the node that the bytes describe, round by round. It returns how many pods were evicted.
func play(t *testing.T, data []byte) (evicted int) {
	w := &world{feed: &feed{data}, t: t, signals: pressure.Signals{}, now: time.Unix(1_000_000, 0)}
	w.build()
	for len(w.rest) > 0 {
		was := w.victim
		if w.round(); w.victim != was && w.victim != "" {
			evicted++
		}
	}
	return evicted
}

// FuzzDecide simulates nodes with arbitrary signals, pods and thresholds, and checks the invariants of doc.go after each round.
func FuzzDecide(f *testing.F) {
	f.Add([]byte("wherry"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		play(t, data)
	})
}

// TestWorlds simulates 3000 random nodes. The invariants of doc.go must hold, and at least 500 pods must be evicted, because otherwise
// the test would show little.
func TestWorlds(t *testing.T) {
	t.Parallel()
	evicted := 0
	seed := uint64(1)
	for range 3000 {
		data := make([]byte, 400)
		for i := range data {
			seed = seed*6364136223846793005 + 1442695040888963407
			data[i] = byte(seed >> 56)
		}
		evicted += play(t, data)
	}
	if evicted < 500 {
		t.Errorf("only %d pods were evicted in 3000 worlds: they show little", evicted)
	}
}
