package pressure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const mi = 1 << 20

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   ParseInput
		want string // thresholds, or the error
	}{
		"the defaults of a Linux node": {
			ParseInput{Hard: defaultHard()},
			"memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5% imagefs.available<15% imagefs.inodesFree<5%",
		},
		"soft with grace, hard with pods enforced": {
			ParseInput{
				Hard: map[string]string{"memory.available": "100Mi"}, Soft: map[string]string{"memory.available": "1Gi"},
				SoftGracePeriod: map[string]string{"memory.available": "1m30s"}, EnforceNodeAllocatable: []string{"pods"},
			},
			"memory.available<100Mi memory.available<1Gi for 1m30s allocatableMemory.available<100Mi",
		},
		"0% and 100% switch a signal off": {
			ParseInput{Hard: map[string]string{"nodefs.available": "0%", "imagefs.available": "100%"}}, "",
		},
		"unknown signal": {ParseInput{Hard: map[string]string{"memory.free": "1Mi"}}, "error: evictionHard[memory.free]: unknown signal"},
		"bad quantity":   {ParseInput{Hard: map[string]string{"memory.available": "lots"}}, `error: evictionHard[memory.available]: "lots" is neither`},
		"zero":           {ParseInput{Hard: map[string]string{"memory.available": "0"}}, `error: evictionHard[memory.available]: "0" is neither`},
		"over 100%":      {ParseInput{Hard: map[string]string{"nodefs.available": "101%"}}, `error: evictionHard[nodefs.available]: "101%" is neither`},
		"not a number":   {ParseInput{Hard: map[string]string{"nodefs.available": "NaN%"}}, `error: evictionHard[nodefs.available]: "NaN%" is neither`},
		"soft without grace": {
			ParseInput{Soft: map[string]string{"memory.available": "1Gi"}},
			"error: evictionSoft[memory.available]: needs a grace period: set evictionSoftGracePeriod[memory.available]",
		},
		"bad minimum reclaim": {
			ParseInput{Hard: defaultHard(), MinimumReclaim: map[string]string{"memory.available": "-1"}},
			`error: evictionMinimumReclaim[memory.available]: "-1" is neither`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse(tc.in)
			if want, bad := strings.CutPrefix(tc.want, "error: "); bad {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("error %v, want one with %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, th := range got {
				words = append(words, th.String())
			}
			if diff := cmp.Diff(tc.want, strings.Join(words, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// evictionMinimumReclaim of memory.available also applies to the memory of all pods, with and without soft thresholds.
func TestMinimumReclaimOfThePodsMemory(t *testing.T) {
	t.Parallel()
	for _, soft := range []map[string]string{nil, {"memory.available": "1Gi"}} {
		got, err := Parse(ParseInput{
			Hard: map[string]string{"memory.available": "100Mi"}, Soft: soft, SoftGracePeriod: map[string]string{"memory.available": "1m"},
			MinimumReclaim: map[string]string{"memory.available": "200Mi"}, EnforceNodeAllocatable: []string{"pods"},
		})
		if err != nil {
			t.Fatal(err)
		}
		pods := 0
		for _, th := range got {
			if th.Signal == AllocatableMemoryAvailable {
				pods++
				if n := th.Wanted(1000 * mi); n != 300*mi {
					t.Errorf("soft %v: %s wants %d bytes", soft, th, n)
				}
			}
		}
		if pods != 1 {
			t.Errorf("soft %v: %d thresholds of the pods' memory in %v", soft, pods, got)
		}
	}
}

// step is one measurement, at a time since the start.
type step struct {
	at   time.Duration
	free int64 // MiB of memory; negative: not measured
	want string
}

// noCapacity is the value of step.free for a reading without a capacity.
const noCapacity = -2

func TestEvaluate(t *testing.T) {
	t.Parallel()
	reclaim := Value{Quantity: ptr(resource.MustParse("200Mi"))}
	hard := Threshold{Signal: MemoryAvailable, Value: Value{Quantity: ptr(resource.MustParse("100Mi"))}}
	withReclaim := hard
	withReclaim.MinReclaim = &reclaim
	soft := Threshold{Signal: MemoryAvailable, Value: Value{Fraction: 0.5}, Grace: time.Minute}
	for name, tc := range map[string]struct {
		thresholds []Threshold
		steps      []step
	}{
		"hard: at once, held for the transition period": {[]Threshold{hard}, []step{
			{0, 100, "False"}, {1, 99, "True due"}, {2, 500, "True"}, {5, 500, "True"}, {6, 500, "False"},
		}},
		"soft: condition at once, reclaim after the grace period": {[]Threshold{soft}, []step{
			{0, 400, "True"}, {1, 400, "True due"}, {2, 600, "True"}, {3, 400, "True"}, {4, 400, "True due"},
		}},
		"minimum reclaim keeps a threshold met": {[]Threshold{withReclaim}, []step{
			{0, 250, "False"}, {1, 50, "True due"}, {2, 250, "True due"}, {3, 300, "True"}, {4, 250, "True"},
		}},
		"never measured is unknown": {[]Threshold{hard}, []step{{0, -1, "Unknown"}, {1, 200, "False"}, {2, -1, "False"}}},
		"pressure outlives a failed reading": {[]Threshold{hard}, []step{
			{0, 50, "True due"}, {9, -1, "True"}, {10, 500, "False"},
		}},
		"a failed reading does not restart a grace period": {[]Threshold{{Signal: MemoryAvailable, Value: Value{Fraction: 0.5}, Grace: 3 * time.Minute}}, []step{
			{0, 400, "True"}, {2, -1, "True"}, {3, 400, "True due"},
		}},
		"without a capacity it is not measured": {[]Threshold{hard}, []step{{0, 200, "False"}, {1, noCapacity, "False"}, {2, 50, "True due"}, {3, noCapacity, "True"}}},
		"no threshold, no pressure":             {nil, []step{{0, 1, "False"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Unix(1000, 0)
			var state State
			for _, s := range tc.steps {
				in := Input{Thresholds: tc.thresholds, TransitionPeriod: transitionPeriod, Previous: state, Now: start.Add(s.at * time.Minute)}
				if s.free >= 0 {
					in.Signals = Signals{MemoryAvailable: {Available: s.free * mi, Capacity: 1000 * mi}}
				} else if s.free == noCapacity {
					in.Signals = Signals{MemoryAvailable: {}}
				}
				res := Evaluate(in)
				state = res.State
				got := res.Memory.String()
				if slices.ContainsFunc(res.Met, func(c Crossing) bool { return c.Due }) {
					got += " due"
				}
				if got != s.want {
					t.Errorf("minute %d, %d MiB free: %s, want %s", s.at, s.free, got, s.want)
				}
				if (s.free < 0) != (len(res.Missing) > 0) {
					t.Errorf("minute %d: missing = %v", s.at, res.Missing)
				}
				if !res.Next.IsZero() && !res.Next.After(in.Now) {
					t.Errorf("minute %d: next look %v is not after now", s.at, res.Next)
				}
			}
		})
	}
}

func TestSignalsToConditions(t *testing.T) {
	t.Parallel()
	th, err := Parse(ParseInput{Hard: map[string]string{"pid.available": "10%", "imagefs.inodesFree": "5%", "memory.available": "1Mi"}})
	if err != nil {
		t.Fatal(err)
	}
	res := Evaluate(Input{Thresholds: th, Now: time.Unix(1, 0), TransitionPeriod: transitionPeriod, Signals: Signals{
		PIDAvailable: {Available: 9, Capacity: 100}, ImagefsInodesFree: {Available: 4, Capacity: 100}, MemoryAvailable: {Available: 2 * mi, Capacity: mi},
	}})
	got := []any{res.Memory.String(), res.Disk.String(), res.PID.String()}
	var met []string
	for _, c := range res.Met {
		met = append(met, c.String())
	}
	if diff := cmp.Diff([]any{"False", "True", "True"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"imagefs.inodesFree<5%: 4 available of 100", "pid.available<10%: 9 available of 100"}, met); diff != "" {
		t.Error(diff)
	}
	if first := res.Met[0]; !first.Due || first.Threshold.Signal.Resource() != "inodes" {
		t.Errorf("the first is %s, due: %t; want inodes, due", first.Threshold.Signal.Resource(), first.Due)
	}
}

func TestHardReservation(t *testing.T) {
	t.Parallel()
	th, err := Parse(ParseInput{Hard: defaultHard(), Soft: map[string]string{"memory.available": "9Gi"}, SoftGracePeriod: map[string]string{"memory.available": "1m"}})
	if err != nil {
		t.Fatal(err)
	}
	got := HardReservation(th, v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourceEphemeralStorage: resource.MustParse("1000")})
	want := v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi"), v1.ResourceEphemeralStorage: resource.MustParse("100")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available", "10%", "1m")
	f.Add("pid.available", "-1e999", "x")
	f.Fuzz(func(t *testing.T, signal, value, grace string) {
		th, err := Parse(ParseInput{
			Hard: map[string]string{signal: value}, Soft: map[string]string{signal: value},
			SoftGracePeriod: map[string]string{signal: grace}, MinimumReclaim: map[string]string{signal: value},
		})
		if err != nil {
			return
		}
		for _, x := range th {
			if x.Value.Of(1<<40) <= 0 || x.Signal.Condition() == "" {
				t.Errorf("accepted %q %q: %v", signal, value, x)
			}
		}
	})
}

func ptr[T any](v T) *T { return &v }

// transitionPeriod is the default of evictionPressureTransitionPeriod.
const transitionPeriod = 5 * time.Minute

// defaultHard returns the hard thresholds of a Linux node whose configuration names none. The map is new each time.
func defaultHard() map[string]string {
	return map[string]string{
		string(MemoryAvailable):   "100Mi",
		string(NodefsAvailable):   "10%",
		string(NodefsInodesFree):  "5%",
		string(ImagefsAvailable):  "15%",
		string(ImagefsInodesFree): "5%",
	}
}
