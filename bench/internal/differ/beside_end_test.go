package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A container exits at the moment when its probe fails, or a while before. At the same moment either may come first, so the case has a
// Crossing if only one agent stopped the container for the probe.
func TestAnExitBesideAFailedProbe(t *testing.T) {
	for runs, crossed := range map[time.Duration]bool{3 * second: true, 2 * second: false} {
		c := oneContainer()
		c.Spec.Containers[0].LivenessProbe = &v1.Probe{InitialDelaySeconds: 3, FailureThreshold: 1}
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: runs, Fails: map[string]Window{"liveness": {}}}}}
		u, w := newLife(), newLife()
		w.call(4.05, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != crossed {
			t.Errorf("an exit after %s: crossing %+v, want one: %t", runs, v.Crossing, crossed)
		}
	}
}

// A sidecar exits at the moment when its startup probe succeeds. If only one agent then starts the main container, the case has a Crossing;
// if both or neither do, it has none.
func TestAnExitBesideTheSuccessOfAStartupProbe(t *testing.T) {
	for _, try := range []struct{ u, w, crossed bool }{{false, true, true}, {true, true, false}, {false, false, false}} {
		c := withSidecar()
		c.Spec.InitContainers[0].StartupProbe = &v1.Probe{InitialDelaySeconds: 3, FailureThreshold: 1}
		c.Plays = map[string][]Play{"side-0": {{Exits: true, Runs: 3 * second}, {}}}
		u, w := newLife(), newLife()
		for l, goes := range map[*life]bool{&u: try.u, &w: try.w} {
			l.Calls = l.Calls[:1]
			l.runs(1, "side-0", 0)
			at := 8.0
			if goes {
				at = 4.1
			}
			l.runs(4.2, "side-0", 1)
			l.runs(at, "main-0", 0)
		}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != try.crossed {
			t.Errorf("%+v: crossing %+v", try, v.Crossing)
		}
	}
}

// The last container exits, and the pod is deleted. If that is within two seconds, one agent may end the pod for the exit and the other one
// for the deletion, so the grace period of the sidecar is not compared.
func TestADeletionBesideThePodsOwnEnd(t *testing.T) {
	const class = `calls of sidecar: only upstream has ["stop(4)"], only Wherry has ["stop(2)"]`
	for _, try := range []struct {
		ends  float64
		exits bool
		class []string
	}{{39.2, true, nil}, {37, true, []string{class}}, {39.2, false, []string{class}}} {
		c := withSidecar()
		c.Plays = map[string][]Play{"main-0": {{Exits: try.exits, Runs: 36 * second}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(1, "side-0", 0)
		}
		u.call(40.1, Call{Verb: "StopContainer", Container: "side-0", Timeout: 4})
		w.call(try.ends, Call{Verb: "StopContainer", Container: "side-0", Timeout: 2})
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.callsOf("side-0")
		want(t, d.found, try.class...)
	}
}

// A value that the other agent shows too while the pod ends is none of only one agent, even if the other agent shows it for a moment.
func TestAValueThatPassesInTheEnd(t *testing.T) {
	for last, class := range map[string]string{
		"PodFailed":    "condition Ready while the pod ends: only Wherry tells of each end at once",
		"PodCompleted": `condition Ready while the pod ends: only upstream has ["False PodFailed"], only Wherry has ["False ContainersNotReady"]`,
	} {
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.ready(1, v1.ConditionTrue, "")
			l.Ended = l.at(47.5)
		}
		u.ready(44, v1.ConditionFalse, "PodFailed")
		w.ready(40.5, v1.ConditionFalse, "ContainersNotReady")
		w.ready(47, v1.ConditionFalse, last)
		d := newDiffer(oneContainer(), u.Trace, w.Trace, never)
		d.series("condition Ready", "condition Ready in the API", u.condition(v1.PodReady), w.condition(v1.PodReady))
		want(t, d.found, class)
	}
}

// A preStop hook begins the pod's end, as a stop does.
func TestAHookBeginsThePodsEnd(t *testing.T) {
	l := newLife()
	l.call(10, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop"})
	l.call(20, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
	if got := (&differ{c: oneContainer()}).ends(l.Trace).Sub(l.start); got != 10*second {
		t.Errorf("the end begins %s after the start, want 10s", got)
	}
}

// readyForAMoment compares two lives of a pod: only Wherry shows the pod as ready, from second 20 to second 21.
func readyForAMoment(c *Case) []Difference {
	u, w := newLife(), newLife()
	for _, l := range []life{u, w} {
		l.ready(1, v1.ConditionFalse, "ContainersNotReady")
	}
	w.ready(20, v1.ConditionTrue, "")
	w.ready(21, v1.ConditionFalse, "ContainersNotReady")
	return Compare(c, u.Trace, w.Trace)
}

// The first results of a probe come after its initialDelaySeconds, so they are a cause for a value of a moment.
func TestTheFirstResultsOfAProbeAreACause(t *testing.T) {
	for delay, found := range map[int32]int{18: 0, 5: 1} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe = &v1.Probe{InitialDelaySeconds: delay}
		if got := readyForAMoment(c); len(got) != found {
			t.Errorf("a delay of %d s: %q", delay, classes(got))
		}
	}
}

// The end of a postStart hook is a cause for a value of a moment: the container is shown as running then.
func TestTheEndOfAHookIsACause(t *testing.T) {
	for hook, found := range map[time.Duration]int{18 * second: 0, 8 * second: 1} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": hook}}}}
		if got := readyForAMoment(c); len(got) != found {
			t.Errorf("a hook of %s: %q", hook, classes(got))
		}
	}
}

// What only one agent tells of the readiness of a container that it started in the last two seconds of the pod is excused.
func TestTheReadinessOfWhatStartsInTheEnd(t *testing.T) {
	for began, class := range map[float64][]string{39: nil, 30: {`readiness of main while the pod ends: only upstream has ["ready=false started=false"]`}} {
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.Calls = l.Calls[:1]
			l.runs(began, "main-0", 0)
			l.Ended = l.at(50)
		}
		d := newDiffer(oneContainer(), u.Trace, w.Trace, never)
		d.series("readiness of main", "readiness of main-0 in the API", []span{{"0 ready=false started=false", u.at(40.5), 5 * second}}, nil)
		want(t, d.found, class...)
	}
}

// A sidecar is restarted, and the main container exits at that time or four seconds later. If the pod's end begins within a second of the
// start, one agent need not run the sidecar's postStart hook any more, even if it stops the sidecar later.
func TestAHookOfASidecarBesideThePodsEnd(t *testing.T) {
	for ends, class := range map[float64][]string{10.1: nil, 14: {`calls of sidecar: only upstream has ["postStart"]`}} {
		c := withSidecar()
		c.Spec.RestartPolicy = v1.RestartPolicyNever
		side := c.Spec.InitContainers[0]
		side.Name = "side-1"
		c.Spec.InitContainers = append(c.Spec.InitContainers, side)
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: time.Duration(ends*float64(second)) - second}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(1, "side-1", 0)
			l.runs(10, "side-0", 0)
		}
		u.call(10, Call{Verb: "ExecSync", Command: "postStart", Container: "side-0"})
		for _, l := range []*life{&u, &w} {
			l.call(ends, Call{Verb: "StopContainer", Container: "side-1", Timeout: 2})
			l.call(ends+1.5, Call{Verb: "StopContainer", Container: "side-0", Timeout: 2})
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.callsOf("side-0")
		want(t, d.found, class...)
	}
}

// Upstream's kubelet shows for a moment how a container ended before its back-off. Only Wherry shows that end once more between the two lives
// of the static pod, which is a decided (intended) difference; at another time it is none.
func TestAnEndShownAgainBetweenTwoLives(t *testing.T) {
	const end = "terminated 1 Error 1"
	for at, class := range map[float64]string{
		20.6: "states of main while the pod ends: only Wherry tells of each end at once",
		13:   `states of main: only Wherry has ["terminated Error 1"]`,
	} {
		c := oneContainer()
		c.Kind, c.Acts = Static, []Act{{At: 20 * second, Do: WriteFile, Container: "main-0"}}
		u, w := newLife(), newLife()
		w.call(20.2, Call{Verb: "StopPodSandbox"})
		w.call(21.8, Call{Verb: "RunPodSandbox"})
		w.runs(21.9, "main-0", lifeAttempts)
		d := newDiffer(c, u.Trace, w.Trace, never)
		wait := span{"waiting 1 CrashLoopBackOff", u.at(10), 3 * second}
		d.series("states of main", "states of main-0 in the API", []span{{end, u.at(8), second}, wait}, []span{wait, {end, w.at(at), 4 * second}})
		want(t, d.found, class)
	}
}

// Only Wherry shows a static pod as Running between the removal of its manifest and its return: a decided (intended) difference. If it is
// shown as Running before the removal, it is none.
func TestAStaticPodThatIsRunningWhileItIsRemoved(t *testing.T) {
	for at, class := range map[float64]string{20.5: classRunsRemoved, 15: `phases: only Wherry has ["Running" "Pending"]`} {
		c := oneContainer()
		c.Kind, c.Acts = Static, []Act{{At: 20 * second, Do: RemoveFile}, {At: 32 * second, Do: WriteFile}}
		u, w := newLife(), newLife()
		w.call(20.2, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2})
		w.call(32.2, Call{Verb: "RunPodSandbox"})
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("phases", "the phases in the API", []span{{"Pending", u.at(0), 41 * second}}, []span{
			{"Pending", w.at(0), 20 * second}, {"Running", w.at(at), 12 * second}, {"Pending", w.at(32.2), 7 * second}})
		want(t, d.found, class)
	}
}
