package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

const second = time.Second

// runs adds the start of the first instance of a container to the trace.
func (l life) runs(second float64, name string, attempt uint32) {
	l.call(second, Call{Verb: "CreateContainer", Container: name, Attempt: attempt})
	l.call(second, Call{Verb: "StartContainer", Container: name, Attempt: attempt})
}

// withSidecar returns a case with the main container main-0 and the sidecar side-0.
func withSidecar() *Case {
	c := oneContainer()
	c.Spec.InitContainers = []v1.Container{{Name: "side-0", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	return c
}

// shows adds to the trace a version of the pod at the given second, in which side-0 is an init container that runs.
func (l life) shows(second float64, ready, started bool, reason string) {
	side := v1.ContainerStatus{Name: "side-0", Ready: ready, Started: &started, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	p := &v1.Pod{Status: v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{side}}}
	if reason != "" {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: reason}}
	}
	l.Statuses = append(l.Statuses, Seen{l.at(second), p})
}

// The agents are restarted during a postStart hook, and only Wherry runs the hook again: a decided (intended) difference. It is none if the
// restart came after the hook.
func TestAHookThatARestartCutsShort(t *testing.T) {
	for down, root := range map[float64]string{5: classHookResent, 20: ""} {
		c := oneContainer()
		c.Kind, c.Plays = Restart, map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": 12 * second}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
			l.Downs = []Down{{l.at(down), l.at(down + 0.2)}}
		}
		w.call(down+1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
		w.call(down+13, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("a restart in second %g: %q, want %q", down, got, root)
		}
	}
}

// The startup probe of a container begins to fail in second 5, and only upstream's kubelet stops the container. That is a decided (intended)
// difference if the postStart hook of another container still runs in second 5, since the kubelet does not probe the container before.
func TestAProbeThatBeginsAfterTheHookOfAnother(t *testing.T) {
	for hook, root := range map[time.Duration]string{12 * second: classProbedAfter, 3 * second: ""} {
		c := twoContainers()
		c.Spec.Containers[1].StartupProbe = &v1.Probe{}
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": hook}}}, "main-1": {{Fails: map[string]Window{"startup": {From: 5 * second}}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(1, "main-1", 0)
			l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
		}
		u.call(14, Call{Verb: "StopContainer", Container: "main-1", Timeout: 8})
		w.call(40, Call{Verb: "StopContainer", Container: "main-1", Timeout: 8})
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("a hook of %s: %q, want %q", hook, got, root)
		}
	}
}

// Wherry restarts a sidecar and upstream's kubelet does not. That is a decided (intended) difference if the only main container ends at that
// time because a probe failed; it is none if the container runs until the pod's deletion.
func TestASidecarThatIsRestartedInTheEnd(t *testing.T) {
	for stopped, root := range map[float64]string{10: classSidecarInEnd, 40: ""} {
		c := withSidecar()
		c.Spec.Containers[0].LivenessProbe = &v1.Probe{}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(0.5, "side-0", 0)
		}
		w.runs(11, "side-0", 1)
		for _, l := range []*life{&u, &w} {
			l.call(stopped, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		}
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("a stop in second %g: %q, want %q", stopped, got, root)
		}
	}
}

// A postStart hook fails, and upstream's kubelet waits until its container has ended before it restarts another one. If the hook does not
// fail, the kubelet does not wait for a stop that follows.
func TestAHookThatFailsHoldsUntilItsContainerHasEnded(t *testing.T) {
	for fails, root := range map[bool]string{true: classWhileHook, false: ""} {
		c := twoContainers()
		play := Play{Slow: map[string]time.Duration{"postStart": 3 * second}}
		if fails {
			play.Fails = map[string]Window{"postStart": {}}
		}
		c.Plays = map[string][]Play{"main-0": {play}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(1, "main-1", 0)
			l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
			l.call(4, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop", Late: true})
		}
		u.call(14, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2})
		u.call(16, Call{Verb: "CreateContainer", Container: "main-1", Attempt: 1})
		u.call(16.1, Call{Verb: "StartContainer", Container: "main-1", Attempt: 1})
		w.runs(6, "main-1", 1)
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("the hook fails %t: %q, want %q", fails, got, root)
		}
	}
}

// While a pod ends, only upstream's kubelet tells that the startup probe of a sidecar succeeds: a decided (intended) difference. Without
// such a probe, or if Wherry reported nothing of the sidecar, it is undecided.
func TestAStartupProbeThatSucceedsInTheEnd(t *testing.T) {
	for _, try := range []struct {
		probe *v1.Probe
		told  bool
		class string
	}{
		{&v1.Probe{}, true, classStartsInItsEnd},
		{nil, true, `readiness of sidecar while the pod ends: only upstream has ["ready=false started=true"]`},
		{&v1.Probe{}, false, `readiness of sidecar while the pod ends: only upstream has ["ready=false started=true"]`},
	} {
		c := withSidecar()
		c.Spec.InitContainers[0].StartupProbe = try.probe
		u, w := newLife(), newLife()
		u.shows(20, false, false, "")
		u.shows(41, false, true, "")
		if try.told {
			w.shows(20, false, false, "")
		}
		u.Ended, w.Ended = u.at(50), w.at(50)
		d := newDiffer(c, u.Trace, w.Trace, never)
		told := u.readiness("side-0")
		if !try.told {
			told = told[1:]
		}
		d.series("readiness of sidecar", "readiness of side-0 in the API", told, w.readiness("side-0"))
		want(t, d.found, try.class)
	}
}

// Only upstream's kubelet shows a sidecar as ready. After it has shown that the pod has failed, this is a decided (intended) difference.
func TestASidecarThatIsReadyInAFailedPod(t *testing.T) {
	for reason, class := range map[string]string{"PodFailed": classReadyOfFailed, "ContainersNotReady": `readiness of sidecar: only upstream has ["ready=true started=true"]`} {
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.shows(10, false, true, reason)
		}
		u.shows(12, true, true, reason)
		d := newDiffer(withSidecar(), u.Trace, w.Trace, never)
		d.series("readiness of sidecar", "readiness of side-0 in the API", u.readiness("side-0"), w.readiness("side-0"))
		want(t, d.found, class)
	}
}

// Upstream's kubelet ends the readiness probes of a pod that it has reported as failed, so it need not tell of a probe that fails soon before.
func TestAReadinessProbeOfAFailedPod(t *testing.T) {
	for failed, found := range map[float64]bool{11: false, 30: true} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}, FailureThreshold: 1}
		c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"readiness": {From: 9 * second}}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.ready(failed, v1.ConditionFalse, "PodFailed")
		}
		w.Events["Warning Unhealthy Readiness spec.containers{main-0}"] = Event{Count: 1, Message: "Readiness probe failed: readiness fails\n"}
		if got := Compare(c, u.Trace, w.Trace); (len(got) > 0) != found {
			t.Errorf("failed in second %g: %q", failed, classes(got))
		}
	}
}

// Upstream's last status of a pod has no address. If the kubelet had removed the sandbox before, this is a decided (intended) difference.
func TestALastStatusWithoutAnAddress(t *testing.T) {
	for removed, class := range map[float64]string{
		41: `last status of the pod, podIPs, after the sandbox was removed: upstream "0", Wherry "1"`,
		43: `last status of the pod, podIPs: upstream "0", Wherry "1"`,
	} {
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			for _, second := range []float64{2, 42} {
				l.status(second, v1.PodRunning, "", v1.ContainerState{})
				if l == &w || second == 2 {
					l.last().Status.PodIPs = []v1.PodIP{{IP: "10.0.0.1"}}
				}
			}
		}
		u.call(removed, Call{Verb: "RemovePodSandbox"})
		want(t, Compare(oneContainer(), u.Trace, w.Trace), class)
	}
}

// An init container exits with 0 after the pod's deletion, and only Wherry reports that the pod is initialized: a decided (intended)
// difference. If the container had exited long before, it is undecided.
func TestAnInitContainerThatEndsInTheEnd(t *testing.T) {
	for runs, class := range map[time.Duration]string{
		42 * second: "condition Initialized while the pod ends: only Wherry tells of each end at once",
		5 * second:  `condition Initialized while the pod ends: only Wherry has ["True"]`,
	} {
		c := oneContainer()
		c.Spec.InitContainers = []v1.Container{{Name: "init-0"}}
		c.Plays = map[string][]Play{"init-0": {{Exits: true, Runs: runs}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(0.5, "init-0", 0)
			l.Ended = l.at(50)
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		was := span{"False ContainersNotInitialized", u.at(1), 41 * second}
		d.series("condition Initialized", "condition Initialized in the API", []span{was}, []span{was, {"True", w.at(43), 5 * second}})
		want(t, d.found, class)
	}
}

// A container that one agent starts again shortly before the pod's end explains what only that agent shows. What both show remains equal.
func TestWhatBothShowBesideAnExtraInstance(t *testing.T) {
	u, w := newLife(), newLife()
	w.runs(36, "main-0", 1)
	for l, second := range map[*life]float64{&u: 37, &w: 36.5} {
		l.ready(1, v1.ConditionFalse, "ContainersNotReady")
		l.ready(second, v1.ConditionTrue, "")
		l.Deleted, l.Ended = l.at(40), l.at(50)
	}
	d := newDiffer(oneContainer(), u.Trace, w.Trace, never)
	d.extras = map[extra]time.Time{{w.Trace, "main-0"}: w.at(36)}
	d.upstream.Deleted = u.at(37) // so that upstream's value is not one of the last five seconds
	d.series("condition Ready", "condition Ready in the API", u.condition(v1.PodReady), w.condition(v1.PodReady))
	want(t, d.found)
}

// Only Wherry shows that a container ended, when its next instance begins. It is a decided (intended) difference if the postStart hook of
// the next instance runs.
func TestAnEndThatIsShownWhileTheNextHookRuns(t *testing.T) {
	for hook, class := range map[string]string{"postStart": classWaitsForHook, "liveness": `states of main: only Wherry has ["terminated Completed 0"]`} {
		u, w := newLife(), newLife()
		w.runs(20, "main-0", 1)
		w.call(20, Call{Verb: "ExecSync", Container: "main-0", Command: hook, Attempt: 1})
		d := newDiffer(oneContainer(), u.Trace, w.Trace, never)
		runs := []span{{"running 0", u.at(1), 10 * second}, {"running 1", u.at(24), 10 * second}}
		d.series("states of main", "states of main-0 in the API", runs, []span{runs[0], {"terminated 0 Completed 0", w.at(20.1), 4 * second}, runs[1]})
		want(t, d.found, class)
	}
}

// The ephemeral container has no place in the order of first starts; the other containers have.
func TestTheOrderOfFirstStarts(t *testing.T) {
	for _, try := range []struct {
		first, second string
		class         []string
	}{
		{"debug", "side-0", nil},
		{"main-1", "side-0", []string{`order of first starts: only upstream has ["sidecar"], only Wherry has ["sidecar"]`}},
	} {
		c := withSidecar()
		c.Spec.Containers = append(c.Spec.Containers, v1.Container{Name: "main-1"})
		u, w := newLife(), newLife()
		u.runs(2, try.first, 0)
		u.runs(2.1, try.second, 0)
		w.runs(2, try.second, 0)
		w.runs(2.1, try.first, 0)
		want(t, Compare(c, u.Trace, w.Trace), try.class...)
	}
}

// The stop after a failed postStart hook holds up upstream's kubelet as the hook did, also where the pod ends with it. A stop at another
// time that ends the pod does not.
func TestAFailedHookThatEndsThePodIsAHold(t *testing.T) {
	for stop, held := range map[float64]time.Duration{4: 5 * second, 20: 3 * second} {
		c := twoContainers()
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": 3 * second, "preStop": 12 * second}}}, "main-1": {{Exits: true, Runs: second}}}
		c.Spec.TerminationGracePeriodSeconds = new(int64(2)) // the preStop hook has no more time than that
		l := newLife()
		l.runs(1, "main-1", 0)
		l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
		l.call(stop, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop"})
		holds := (&differ{c: c}).hookHolds(l.Trace, "main-1")
		if len(holds) != 1 || holds[0].to.Sub(holds[0].from) != held {
			t.Errorf("a stop in second %g: %+v", stop, holds)
		}
	}
}

// A sidecar's startup probe succeeds while the pod ends, so only upstream's kubelet calls the pod initialized: the same decided difference. If
// the probe succeeded before the end, it is undecided.
func TestAPodThatIsInitializedInItsEnd(t *testing.T) {
	for started, class := range map[float64][]string{
		41: {classStartsInItsEnd, classStartsInItsEnd},
		20: {`condition Initialized: only upstream has ["True"]`, `last status of the pod, condition Initialized: upstream "True", Wherry "False"`},
	} {
		c := withSidecar()
		c.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.shows(10, false, false, "")
			l.Ended = l.at(50)
		}
		u.shows(started, false, true, "")
		initialized := func(status v1.ConditionStatus) []v1.PodCondition {
			return []v1.PodCondition{{Type: v1.PodInitialized, Status: status}}
		}
		u.Statuses[0].Pod.Status.Conditions, w.last().Status.Conditions = initialized(v1.ConditionFalse), initialized(v1.ConditionFalse)
		u.last().Status.Conditions = initialized(v1.ConditionTrue)
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("condition Initialized", "condition Initialized in the API", u.condition(v1.PodInitialized), w.condition(v1.PodInitialized))
		d.fields("last status of the pod", "last status of the pod", u.finalPod(), w.finalPod(), "")
		want(t, d.found, class...)
	}
}

// A readiness probe fails until second 8. Upstream's kubelet does not tell of that, which is a decided (intended) difference if the postStart
// hook of another container runs longer, since the kubelet does not probe the container before.
func TestAReadinessProbeThatFailsDuringTheHookOfAnother(t *testing.T) {
	for hook, class := range map[time.Duration]string{
		12 * second: classProbedAfter,
		3 * second:  "event Warning Unhealthy Readiness spec.containers{main}: upstream none, Wherry one",
	} {
		c := twoContainers()
		c.Spec.Containers[1].ReadinessProbe = &v1.Probe{}
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": hook}}}, "main-1": {{Fails: map[string]Window{"readiness": {To: 7 * second}}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(1, "main-1", 0)
			l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
		}
		w.Events["Warning Unhealthy Readiness spec.containers{main-1}"] = Event{Count: 7, First: w.at(2)}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.events()
		want(t, d.found, class)
	}
}

// The own postStart hook of a container runs until its readiness probe no longer fails: an agent need not see a failure. If the probe fails
// longer than the hook runs, it must see one.
func TestAReadinessProbeThatFailsDuringItsOwnHook(t *testing.T) {
	for until, must := range map[time.Duration]bool{7 * second: false, 20 * second: true} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": 12 * second}, Fails: map[string]Window{"readiness": {To: until}}}}}
		w := newLife()
		if _, got := newDiffer(c, w.Trace, w.Trace, never).tells(w.Trace, "main-0", "readiness"); got != must {
			t.Errorf("a probe that fails for %s: a failure must be seen %t, want %t", until, got, must)
		}
	}
}

// The postStart hook of a container fails after a deletion with a shorter grace period. It is a decided (intended) difference that only upstream's
// kubelet then gives the container the pod's grace period, and none if the deletion gives that too, or if Wherry gives less than the deletion.
func TestAHookThatFailsAfterTheDeletion(t *testing.T) {
	for name, x := range map[string]struct {
		grace  int64
		wherry int64
		slow   time.Duration
		want   bool
	}{
		"a shorter deletion":                      {4, 2, 12 * second, true},
		"Wherry gives less than the deletion":     {7, 2, 12 * second, false},
		"the hook fails long before the deletion": {4, 2, 2 * second, false},
	} {
		c := oneContainer()
		c.Spec.TerminationGracePeriodSeconds = new(int64(8))
		c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"postStart": {}}, Slow: map[string]time.Duration{"postStart": x.slow, "preStop": 3 * second}}}}
		c.Acts = []Act{{At: 13 * second, Do: Delete, Grace: x.grace}}
		u, w := newLife(), newLife()
		for l, stop := range map[*life]float64{&u: 18, &w: 16} {
			l.Deleted = l.at(13)
			l.runs(3, "main-0", 0)
			l.call(3, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
			l.call(stop-3, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop"})
			l.call(stop, Call{Verb: "StopContainer", Container: "main-0", Timeout: map[*life]int64{&u: 5, &w: x.wherry}[l]})
		}
		if got := newDiffer(c, u.Trace, w.Trace, never).hookFailsInTheEnd(); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
