package differ

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// If upstream's kubelet may see an exit before or after an act, the case has a Crossing. If both agents see the exit before the act, it has
// none.
func TestAnActBesideAnExitIsCrossed(t *testing.T) {
	for at, crossed := range map[time.Duration]bool{5 * time.Second: true, 12 * time.Second: false, 3 * time.Second: false} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 3500 * time.Millisecond}}} // the container exits in second 4.5
		c.Acts = []Act{{At: at, Do: SetImage, Container: "main-0"}}
		if v := CompareAll(c, newLife().Trace, newLife().Trace); (v.Crossing != nil) != crossed {
			t.Errorf("an exit in second 4.5, an act after %s: crossed %t, want %t", at, v.Crossing != nil, crossed)
		}
	}
}

// Two events at about the same time cause a Crossing only if their order matters. That depends on the kinds of the containers, and on
// what may end the pod.
func TestWhatMayCross(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	c := &Case{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init-0"}, {Name: "init-1"}, {Name: "side-0", RestartPolicy: &always}, {Name: "side-1", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "main-0"}, {Name: "main-1"}},
	}}
	c.Plays = map[string][]Play{"init-0": {{Code: 1}}}
	c.Spec.InitContainers[3].StartupProbe = &v1.Probe{}
	of := func(name string, is happening) beat { return beat{container: name, is: is, last: true} }
	again := of("main-0", isExit)
	again.last = false
	next := of("main-0", isStart)
	next.attempt = lifeAttempts
	later := of("main-0", isFailure)
	later.attempt = 1
	by := func(do Deed) beat { return beat{act: Act{Do: do, Container: "main-0"}} }
	for _, try := range []struct {
		a, b          beat
		always, never bool // whether the order matters with restartPolicy Always and Never
	}{
		{of("main-0", isExit), of("main-1", isExit), false, false},
		{of("main-0", isExit), of("main-1", isFailure), false, true},
		{of("main-0", isExit), of("main-0", isFailure), true, true},
		{of("main-0", isExit), later, false, false},
		{of("main-0", isExit), of("side-0", isExit), false, true},
		{of("side-1", isFailure), of("side-0", isExit), false, false},
		{of("init-0", isExit), of("init-1", isExit), false, false},
		{of("init-0", isExit), of("side-0", isExit), false, true},
		{of("init-1", isExit), of("side-0", isExit), false, false},
		{again, of("side-0", isExit), false, false},
		{again, of("main-1", isFailure), false, false},
		{again, of("side-1", isFailure), true, true},
		{of("init-0", isExit), of("main-0", isExit), false, false},
		{of("main-0", isStart), of("main-1", isExit), false, false},
		{of("side-0", isSuccess), of("main-1", isExit), false, false},
		{by(SetImage), of("main-0", isStart), true, true},
		{by(Resize), of("main-1", isExit), false, false},
		{by(Debug), of("debug", isStart), false, false},
		{by(Debug), of("main-1", isExit), false, true},
		{by(DeleteMirror), of("main-1", isExit), false, false},
		{by(Delete), of("main-1", isExit), false, false},
		{by(Delete), of("main-1", isFailure), true, true},
		{by(Delete), of("side-1", isSuccess), true, true},
		{by(Delete), beat{is: isEnd}, false, false},
		{by(Debug), beat{is: isEnd}, true, true},
		{beat{is: isEnd}, beat{is: isDeadline}, false, false},
		{beat{is: isEnd}, of("main-0", isExit), false, false},
		{by(LoseSandbox), of("side-0", isSuccess), true, true},
		{by(WriteFile), of("main-0", isStart), true, true},
		{by(WriteFile), next, false, false},
		{by(Delete), by(SetImage), false, false},
		{by(Delete), beat{is: isDeadline}, true, true},
		{beat{is: isRestart}, of("main-1", isStart), true, true},
		{beat{is: isDeadline}, of("main-1", isExit), true, true},
	} {
		for policy, crossed := range map[v1.RestartPolicy]bool{v1.RestartPolicyAlways: try.always, v1.RestartPolicyNever: try.never} {
			c.Spec.RestartPolicy = policy
			d := newDiffer(c, newLife().Trace, newLife().Trace, 0)
			if d.meets(try.a, try.b) != crossed || d.meets(try.b, try.a) != crossed {
				t.Errorf("policy %s, %+v and %+v: want %t", policy, try.a, try.b, crossed)
			}
		}
	}
	c.Spec.RestartPolicy = v1.RestartPolicyAlways
	c.Spec.Containers[1].RestartPolicy = &never
	if !newDiffer(c, nil, nil, 0).meets(of("main-0", isExit), of("side-0", isExit)) {
		t.Error("a pod may end whose container has a restart policy of its own")
	}
}

// A container exits, and the sandbox is lost soon after. If upstream's kubelet has restarted the container before the loss, it has seen
// the exit before the loss, and the case has no Crossing. If it restarts the container later, the order is uncertain, and the case has
// one.
func TestAnAgentThatHasSeenAnExit(t *testing.T) {
	for again, crossed := range map[float64]bool{4.7: false, 5.2: true} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 3500 * time.Millisecond}, {}}} // the container exits in second 4.5
		c.Acts = []Act{{At: 5 * time.Second, Do: LoseSandbox}}
		u, w := newLife(), newLife()
		u.call(again, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		w.call(4.6, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != crossed {
			t.Errorf("started again in second %g: crossed %t, want %t", again, v.Crossing != nil, crossed)
		}
	}
}

// A container starts soon after an act on it. If the act caused the start (a StopContainer or a RunPodSandbox came between them), their
// order is fixed, and the case has no Crossing. Otherwise it has one.
func TestAStartThatFollowsFromAnAct(t *testing.T) {
	for cause, crossed := range map[string]bool{"StopContainer": false, "RunPodSandbox": false, "RemoveContainer": true} {
		c := oneContainer()
		c.Acts = []Act{{At: 5 * time.Second, Do: SetImage, Container: "main-0"}}
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.call(5.1, Call{Verb: cause, Container: "main-0"})
			l.call(5.2, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != crossed {
			t.Errorf("a start after a %s: crossed %t, want %t", cause, v.Crossing != nil, crossed)
		}
	}
}

// If an act comes while the pod ends by itself, between the first stop and the report of the end to the API, the agents may see the act and
// the end in a different order, and the case has a Crossing.
func TestAnActBesideThePodsOwnEnd(t *testing.T) {
	for at, crossed := range map[time.Duration]bool{8 * time.Second: false, 12 * time.Second: true, 20 * time.Second: false} {
		c := oneContainer()
		c.Acts = []Act{{At: at, Do: Debug, Container: "debug"}}
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.status(11, v1.PodRunning, "", v1.ContainerState{})
			l.call(10, Call{Verb: "StopContainer", Container: "main-0", Timeout: 3})
			l.status(13, v1.PodFailed, "", v1.ContainerState{})
		}
		u.status(12.5, v1.PodRunning, "", v1.ContainerState{})
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != crossed {
			t.Errorf("an act after %s: the crossing is %+v", at, v.Crossing)
		}
	}
}

// If the timing decides whether a probe fails, the case has a Crossing only if one agent stopped the container because of the failure and
// the other agent did not.
func TestAProbeThatMayFail(t *testing.T) {
	for _, try := range []struct{ upstream, wherry, crossed bool }{{false, false, false}, {true, true, false}, {true, false, true}, {false, true, true}} {
		c := probedContainer(map[string]Window{"liveness": {From: 9 * time.Second, To: 11500 * time.Millisecond}})
		u, w := newLife(), newLife()
		for l, stops := range map[*life]bool{&u: try.upstream, &w: try.wherry} {
			if stops {
				l.call(12.2, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
			}
		}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != try.crossed {
			t.Errorf("%+v: the crossing is %+v", try, v.Crossing)
		}
	}
}

// Settle keeps the decided differences, and the undecided differences from before the Crossing. It removes all others, and counts them as
// excused.
func TestACrossingExcusesWhatComesAfterIt(t *testing.T) {
	v := Verdict{Excused: map[string]int{}, Crossing: &Crossing{},
		Found: []Difference{{Class: "a"}, {Class: "b"}, {Class: classWhileHook}, {Class: "c"}},
		Sure:  []Difference{{Class: "a"}, {Class: "d"}, {Class: classWhileStop}}}
	before := slices.Clone(v.Found)
	v.Settle()
	want(t, v.Found, classWhileHook, "a", "d")
	if v.Excused[excuseCrossed] != 2 {
		t.Errorf("%d lines are excused, want 2", v.Excused[excuseCrossed])
	}
	if before[1].Class != "b" {
		t.Error("the differences of another verdict are gone")
	}
}

// After two runs of a case, a difference counts if both runs show it and it came before the Crossing in at least one of them.
func TestTwoRunsOfACase(t *testing.T) {
	crossed := func(sure string, after ...string) Verdict {
		v := Verdict{Excused: map[string]int{}, Crossing: &Crossing{}, Found: []Difference{{Class: sure}}, Sure: []Difference{{Class: sure}}}
		for _, class := range after {
			v.Found = append(v.Found, Difference{Class: class})
		}
		return v
	}
	uncrossed := func(classes ...string) (v Verdict) {
		for _, class := range classes {
			v.Found = append(v.Found, Difference{Class: class})
		}
		v.Sure = v.Found
		return v
	}
	for _, try := range []struct {
		what          string
		first, second Verdict
		counts        []string
		unsteady      int
		crossed       bool
	}{
		{"both are crossed", crossed("a", "b", "c"), crossed("b", "a"), []string{"a", "b"}, 1, true},
		{"both are crossed before it", crossed("a", "b"), crossed("a", "b"), []string{"a"}, 0, true},
		{"the second is not crossed", crossed("a", "b"), uncrossed("b"), []string{"b"}, 1, false},
		{"the first is not crossed", uncrossed("b"), crossed("a", "b"), []string{"b"}, 0, false},
	} {
		v := try.first
		v.Excused = map[string]int{}
		if n := v.Again(try.second); n != try.unsteady || (v.Crossing != nil) != try.crossed {
			t.Errorf("%s: %d differences that one run alone shows, want %d; crossed %t", try.what, n, try.unsteady, v.Crossing != nil)
		}
		v.Settle()
		want(t, v.Found, try.counts...)
	}
}

// A case whose only difference needs an excuse has no difference, and the excuse is counted. For equal traces no excuse is counted.
func TestExcusesAreCounted(t *testing.T) {
	if v := CompareAll(oneContainer(), newLife().Trace, newLife().Trace); len(v.Excused) > 0 {
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
			u.Events["Warning Unhealthy Liveness spec.containers{main-0}"] = Event{Count: 1, Message: "Liveness probe errored and resulted in unknown state: gone"}
		},
		excuseForced: func(c *Case, u, w *life) {
			c.Acts = []Act{{At: 40 * time.Second, Do: Delete}}
			u.ready(39.9, v1.ConditionTrue, "")
			w.ready(39.9, v1.ConditionFalse, "PodFailed")
		},
	} {
		c, u, w := oneContainer(), newLife(), newLife()
		differ(c, &u, &w)
		v := CompareAll(c, u.Trace, w.Trace)
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

// An event about a hook that the end of its container cut short is excused. An event about a hook that failed is a difference.
func TestAHookThatIsCutShort(t *testing.T) {
	for message, found := range map[string]bool{"PreStopHook failed: context canceled": false, "PreStopHook failed": true} {
		u, w := newLife(), newLife()
		w.Events["Warning FailedPreStopHook spec.containers{main-0}"] = Event{Count: 1, Message: message}
		if got := len(Compare(oneContainer(), u.Trace, w.Trace)) > 0; got != found {
			t.Errorf("%s: a difference %t, want %t", message, got, found)
		}
	}
}

// In this case Wherry restarts a container once more, and upstream's kubelet does not get to that restart before the pod ends. If a decided
// (intended) difference makes upstream restart containers later, Compare reports only that difference. Otherwise it reports the missing
// restart as an undecided difference.
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

// If a container starts again after a stop, the pod's end has not begun with that stop, even if the stop comes after the deletion.
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

// If activeDeadlineSeconds passes at the time of a deletion by a user, the case has a Crossing. If it passes long after the deletion, it
// has none.
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
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != crossed {
			t.Errorf("a deadline after %d s, a deletion after 8: crossed %t, want %t", deadline, v.Crossing != nil, crossed)
		}
	}
}

// Upstream's kubelet restarts a container later than Wherry, which is a decided difference. If the manifest of the static pod is removed
// before upstream's restart is due, its missing start belongs to that class. Otherwise it is an undecided difference.
func TestAStartThatTheEndOfALifePrevents(t *testing.T) {
	for at, class := range map[time.Duration]string{
		22 * time.Second: "time of StartContainer of main after an exit, whose definition is changed: upstream is later",
		0:                "calls of main: only Wherry has a further instance",
	} {
		c := oneContainer()
		c.Kind = Static
		c.Acts = []Act{{At: 3 * time.Second, Do: SetImage, Container: "main-0"}}
		if at > 0 {
			c.Acts = append(c.Acts, Act{At: at, Do: RemoveFile})
		}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(5, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
			l.call(5, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		}
		w.call(9, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 2})
		w.call(9, Call{Verb: "StartContainer", Container: "main-0", Attempt: 2})
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// Upstream's kubelet restarts a container later than Wherry, by the random part of its back-off. What Wherry reports after the container has exited
// again counts only if the kubelet, as much later, still reports it two seconds before the deletion in second 40.
func TestAValueAfterALateRestart(t *testing.T) {
	const class = `condition Ready: only Wherry has ["False ContainersNotReady"]`
	for name, try := range map[string]struct {
		attempt uint32
		began   float64 // when upstream's kubelet restarts the container
		since   float64 // when the container has exited again with Wherry
		found   bool
	}{
		"six seconds before the deletion, five seconds later":    {2, 33.2, 34.2, false},
		"twelve seconds before the deletion, five seconds later": {2, 33.2, 28.2, true},
		"six seconds before the deletion, no later":              {2, 28, 34.2, true},
		"six seconds before the deletion, a first start":         {0, 33.2, 34.2, true},
	} {
		u, w := newLife(), newLife()
		for l, began := range map[*life]float64{&u: try.began, &w: 28} {
			if try.attempt == 0 {
				l.Calls = l.Calls[:1]
			}
			l.runs(began, "main-0", try.attempt)
			l.Ended = l.at(41)
		}
		d := newDiffer(oneContainer(), u.Trace, w.Trace, never)
		d.series("condition Ready", "condition Ready in the API", []span{{"True", u.at(37), 3 * second}},
			[]span{{"True", w.at(31), 3 * second}, {"False ContainersNotReady", w.at(try.since), 6 * second}})
		got := classes(d.found)
		if found := len(got) == 1 && got[0] == class; found != try.found || !try.found && len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}
