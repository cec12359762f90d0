package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// probedContainer returns a case whose container has a startup, a liveness and a readiness probe. fails says when each probe fails.
func probedContainer(fails map[string]Window) *Case {
	c := oneContainer()
	exec := v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"probe"}}}
	c.Spec.Containers[0].StartupProbe = &v1.Probe{ProbeHandler: exec, InitialDelaySeconds: 3, FailureThreshold: 3}
	c.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: exec, FailureThreshold: 3}
	c.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: exec, FailureThreshold: 1}
	c.Plays = map[string][]Play{"main-0": {{Fails: fails}}}
	return c
}

// The test checks when a probe reaches its failureThreshold. That depends on its initialDelaySeconds, its failureThreshold, the startup
// probe, and the script of the case (Play).
func TestWhenAProbeHasFailedForGood(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		fails map[string]Window
		probe string
		first time.Duration // never: the probe does not reach its threshold
		maybe bool
	}{
		"startup, always":                     {map[string]Window{"startup": {}}, "startup", 5 * second, false},
		"startup, too short":                  {map[string]Window{"startup": {To: 4 * second}}, "startup", never, false},
		"liveness, later":                     {map[string]Window{"liveness": {From: 9 * second}}, "liveness", 11 * second, false},
		"liveness, until the third failure":   {map[string]Window{"liveness": {To: 6 * second}}, "liveness", 5 * second, true},
		"liveness, before it is asked":        {map[string]Window{"liveness": {To: 3 * second}}, "liveness", never, false},
		"liveness, of what never starts":      {map[string]Window{"startup": {}, "liveness": {}}, "liveness", never, false},
		"liveness, after startup has ceased":  {map[string]Window{"startup": {To: 4 * second}, "liveness": {From: 0}}, "liveness", 6 * second, false},
		"liveness, beside a startup that end": {map[string]Window{"startup": {To: 10 * second}, "liveness": {}}, "liveness", never, false},
	} {
		c := probedContainer(test.fails)
		if at, maybe := c.kills("main-0", test.probe, c.play("main-0", 0)); at.first != test.first || maybe != test.maybe {
			t.Errorf("%s: after %s, perhaps %t; want %s, %t", name, at.first, maybe, test.first, test.maybe)
		}
	}
}

// If only one agent reports that a probe failed, this is excused if the other agent need not have probed in that time. It is a difference
// if the other agent must have seen a failure, or if the probe never fails.
func TestWhoReportsAFailedProbe(t *testing.T) {
	for name, test := range map[string]struct {
		window Window
		fails  bool
		found  bool
	}{
		"for a second after the startup probe": {Window{To: 4 * time.Second}, true, false},
		"for ten seconds":                      {Window{From: 5 * time.Second, To: 15 * time.Second}, true, true},
		"never":                                {Window{}, false, true},
	} {
		fails := map[string]Window{}
		if test.fails {
			fails["readiness"] = test.window
		}
		for _, upstream := range []bool{true, false} {
			u, w := newLife(), newLife()
			who := w
			if upstream {
				who = u
			}
			who.Events["Warning Unhealthy Readiness spec.containers{main-0}"] = Event{Count: 1, Message: "Readiness probe failed: readiness fails\n"}
			if got := len(Compare(probedContainer(fails), u.Trace, w.Trace)) > 0; got != test.found {
				t.Errorf("%s, only upstream %t: a difference %t, want %t", name, upstream, got, test.found)
			}
		}
	}
}

// Only upstream's kubelet reports that a sidecar's liveness probe failed. If it failed after the pod's end had begun, this is a decided
// (intended) difference. If it failed before, the difference is undecided.
func TestASidecarsProbeInTheEnd(t *testing.T) {
	for from, class := range map[time.Duration]string{
		41 * time.Second: classAskedInTheEnd,
		20 * time.Second: "event Warning Unhealthy Liveness spec.initContainers{sidecar}: upstream one, Wherry none",
	} {
		c := oneContainer()
		c.Spec.InitContainers = []v1.Container{{Name: "side-0", RestartPolicy: new(v1.ContainerRestartPolicyAlways),
			LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}, FailureThreshold: 30}}}
		c.Plays = map[string][]Play{"side-0": {{Fails: map[string]Window{"liveness": {From: from}}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(0.5, Call{Verb: "CreateContainer", Container: "side-0"})
			l.call(0.5, Call{Verb: "StartContainer", Container: "side-0"})
			l.call(48, Call{Verb: "StopContainer", Container: "side-0", Timeout: 2})
			l.Ended = l.at(50)
		}
		u.Events["Warning Unhealthy Liveness spec.initContainers{side-0}"] = Event{Count: 3, Message: "Liveness probe failed: liveness fails\n"}
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// As above, while the preStop hook of the sidecar runs: the pod's end begins with the hook, in second 10, and the hook takes five seconds. A probe
// that fails only when the sidecar, which ends at once, has ended is no reason for the event.
func TestASidecarsProbeDuringItsHook(t *testing.T) {
	for from, class := range map[time.Duration]string{
		13 * time.Second: classAskedInTheEnd,
		18 * time.Second: "event Warning Unhealthy Liveness spec.initContainers{sidecar}: upstream one, Wherry none",
	} {
		c := withSidecar()
		c.Spec.InitContainers[0].LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}, FailureThreshold: 1}
		c.Plays = map[string][]Play{
			"main-0": {{Exits: true, Runs: 9 * time.Second}},
			"side-0": {{Fails: map[string]Window{"liveness": {From: from}}, Slow: map[string]time.Duration{"preStop": 5 * time.Second}}},
		}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.Calls = l.Calls[:1]
			l.runs(0.1, "side-0", 0)
			l.runs(1, "main-0", 0)
			l.call(10, Call{Verb: "ExecSync", Command: "preStop", Container: "side-0"})
			l.call(15, Call{Verb: "StopContainer", Container: "side-0", Timeout: 25})
			l.call(15, Call{Verb: "StopPodSandbox"})
		}
		u.Events["Warning Unhealthy Liveness spec.initContainers{side-0}"] = Event{Count: 1, Message: "Liveness probe failed: liveness fails\n"}
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// If the agents restart at about the time when a probe reaches its failureThreshold, the case has a Crossing.
func TestARestartBesideAFailureIsCrossed(t *testing.T) {
	for at, crossed := range map[float64]bool{12.5: true, 20: false} {
		c := probedContainer(map[string]Window{"liveness": {From: 9 * time.Second}}) // the container has to end in second 12
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.Downs = []Down{{l.at(at), l.at(at + 1)}}
		}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != crossed {
			t.Errorf("a restart in second %g: crossed %t, want %t", at, v.Crossing != nil, crossed)
		}
	}
}

// Only Wherry shows that an instance is ready which exits after three seconds, since three successes in three periods, after the success of a
// startup probe, take longer. That is a decided (intended) difference; it is none if the instance runs for a minute, or says something else.
func TestAContainerThatIsReadyBeforeItSoonExits(t *testing.T) {
	for runs, want := range map[time.Duration]bool{3 * time.Second: true, time.Minute: false} {
		c := oneContainer()
		c.Spec.Containers[0].StartupProbe = &v1.Probe{PeriodSeconds: 1}
		c.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, SuccessThreshold: 3}
		c.Plays = map[string][]Play{"main-0": {{}, {Exits: true, Runs: runs}}}
		u, w := newLife(), newLife()
		d := newDiffer(c, u.Trace, w.Trace, never)
		ready := []span{{value: "1 ready=true started=true", since: w.at(11), lasts: 2700 * time.Millisecond}}
		if got := d.readySooner("readiness of main", "main-0", ready, []string{"1 ready=true started=true"}); got != want {
			t.Errorf("it runs for %s: %v", runs, got)
		}
		if d.readySooner("readiness of main", "main-0", ready, []string{"1 ready=false started=true"}) {
			t.Error("a container that is not ready is taken for one that is ready sooner")
		}
		if d.readySooner("condition Ready of the pod", "", []span{{value: "True", since: w.at(11), lasts: 2700 * time.Millisecond}}, []string{"True"}) {
			t.Error("a condition is explained by a container that was never ready")
		}
	}
}
