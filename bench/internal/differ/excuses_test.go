package differ

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// If upstream's kubelet may see an exit before or after an act, the two sides may differ. If both see the exit before the act,
// they may not.
func TestAnActBesideAnExitIsCrossed(t *testing.T) {
	for at, crossed := range map[time.Duration]bool{5 * time.Second: true, 12 * time.Second: false, 3 * time.Second: false} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 3500 * time.Millisecond}}} // the container exits in second 4.5
		c.Acts = []Act{{At: at, Do: SetImage, Container: "main-0"}}
		if v := Judge(c, newLife().Trace, newLife().Trace); v.Crossed != crossed {
			t.Errorf("an exit in second 4.5, an act after %s: crossed %t, want %t", at, v.Crossed, crossed)
		}
	}
}

// What two containers do by themselves is not crossed with the start of one of them. What one container does is not crossed with
// itself.
func TestStartsOfOtherContainersAreNotCrossed(t *testing.T) {
	c := twoContainers()
	c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 4 * time.Second}}}
	u, w := newLife(), newLife()
	for _, l := range []*life{&u, &w} {
		l.call(5, Call{Verb: "CreateContainer", Container: "main-1"})
		l.call(5, Call{Verb: "StartContainer", Container: "main-1"})
	}
	if Judge(c, u.Trace, w.Trace).Crossed {
		t.Error("a start beside the exit of another container is crossed")
	}
	c.Plays["main-1"] = []Play{{Exits: true, Runs: 500 * time.Millisecond}}
	if !Judge(c, u.Trace, w.Trace).Crossed {
		t.Error("two exits within a second are not crossed")
	}
}

func TestUncrossLeavesConfigurationAndWhatIsDecided(t *testing.T) {
	v := Verdict{Excused: map[string]int{}, Found: []Difference{
		{Class: "a", Level: InConfig}, {Class: "b", Level: InCalls}, {Class: classWhileHook, Level: InCalls}, {Class: "c", Level: InEvents}}}
	before := slices.Clone(v.Found)
	v.Uncross()
	want(t, v.Found, "a", classWhileHook)
	if v.Excused[excuseCrossed] != 2 {
		t.Errorf("%d lines are excused, want 2", v.Excused[excuseCrossed])
	}
	if before[1].Class != "b" {
		t.Error("the differences of another verdict are gone")
	}
}

// Each excuse counts the lines that it removes. If the sides are equal, it counts none.
func TestExcusesAreCounted(t *testing.T) {
	if v := Judge(oneContainer(), newLife().Trace, newLife().Trace); len(v.Excused) > 0 {
		t.Errorf("equal lives need excuses: %v", v.Excused)
	}
	for excuse, differ := range map[string]func(c *Case, u, w *life){
		excusePassing: func(_ *Case, u, w *life) {
			u.ready(1, v1.ConditionTrue, "")
			w.ready(1, v1.ConditionFalse, "ContainersNotReady")
			w.ready(2, v1.ConditionTrue, "")
		},
		excuseExtra: func(_ *Case, _, w *life) { w.call(36, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1}) },
		excuseSecond: func(_ *Case, u, w *life) {
			u.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
			w.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 7})
		},
		excuseTime: func(_ *Case, u, w *life) {
			u.call(20, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
			w.call(23, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		},
		excuseCut: func(_ *Case, u, _ *life) {
			u.Events["Warning Unhealthy spec.containers{main-0}"] = Event{1, "Liveness probe errored and resulted in unknown state: gone"}
		},
		excuseForced: func(c *Case, u, w *life) {
			c.Acts = []Act{{At: 40 * time.Second, Do: Delete}}
			u.ready(39.9, v1.ConditionTrue, "")
			w.ready(39.9, v1.ConditionFalse, "PodFailed")
		},
	} {
		c, u, w := oneContainer(), newLife(), newLife()
		differ(c, &u, &w)
		v := Judge(c, u.Trace, w.Trace)
		if v.Excused[excuse] == 0 {
			t.Errorf("%q takes nothing: %v", excuse, v.Excused)
		}
		want(t, v.Found)
	}
}

func TestEachExcuseHasABoundAndAReason(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Excuses {
		if e.Name == "" || e.Why == "" || (e.Most <= 0 || e.Most > 50) == (e.Lines <= 0) || seen[e.Name] {
			t.Errorf("an excuse twice, or without a reason or a bound: %+v", e)
		}
		seen[e.Name] = true
	}
}

// An event that says that a hook was cut short is no difference. An event that says that the hook failed is one.
func TestAHookThatIsCutShort(t *testing.T) {
	for message, found := range map[string]bool{"PreStopHook failed: context canceled": false, "PreStopHook failed": true} {
		u, w := newLife(), newLife()
		w.Events["Warning FailedPreStopHook spec.containers{main-0}"] = Event{1, message}
		if got := len(Compare(oneContainer(), u.Trace, w.Trace)) > 0; got != found {
			t.Errorf("%s: a difference %t, want %t", message, got, found)
		}
	}
}

// If upstream's kubelet does not start a container because it waits by decision, that decision is counted. Another missing start
// is a difference.
func TestAStartThatUpstreamDoesNotComeTo(t *testing.T) {
	for changed, class := range map[bool]string{
		true:  "time of StartContainer of main after an exit, whose definition is changed: upstream is later",
		false: "calls of main: only Wherry has a further instance",
	} {
		c := oneContainer()
		if changed {
			c.Acts = []Act{{At: 20 * time.Second, Do: SetImage, Container: "main-0"}}
		}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(21, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
			l.call(21, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		}
		w.call(25, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 2})
		w.call(25, Call{Verb: "StartContainer", Container: "main-0", Attempt: 2})
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// A stop because of a failed probe does not belong to the pod's end, even if it comes after the deletion.
func TestTheStopOfWhatStartsAgainIsNotOfThePodsEnd(t *testing.T) {
	u := newLife()
	u.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
	if got := u.stops(); !slices.Equal(got, []string{"main-0"}) {
		t.Errorf("stops %v", got)
	}
	u.call(40.1, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
	if got := u.stops(); len(got) > 0 {
		t.Errorf("stops %v, want none", got)
	}
}

// A deadline close to an act is crossed. An act close to the deletion that it causes is not.
func TestADeadlineBesideAnActIsCrossed(t *testing.T) {
	for deadline, crossed := range map[int64]bool{8: true, 20: false} {
		c := oneContainer()
		c.Spec.ActiveDeadlineSeconds = &deadline
		c.Acts = []Act{{At: 8 * time.Second, Do: Delete}}
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.Deleted = l.at(8)
			l.ready(1, v1.ConditionTrue, "")
			start := metav1.NewTime(l.start)
			l.Statuses[0].Pod.Status.StartTime = &start
		}
		if v := Judge(c, u.Trace, w.Trace); v.Crossed != crossed {
			t.Errorf("a deadline after %d s, a deletion after 8: crossed %t, want %t", deadline, v.Crossed, crossed)
		}
	}
}
