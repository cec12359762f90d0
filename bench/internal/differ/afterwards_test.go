package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The agents are restarted, and only upstream's kubelet then stops a container whose startup probe fails. That is a decided (intended)
// difference if the probe had succeeded before it began to fail.
func TestAStartupProbeAfterARestart(t *testing.T) {
	for from, root := range map[time.Duration]string{8 * second: classStartupAgain, 0: ""} {
		c := oneContainer()
		c.Kind = Restart
		c.Spec.Containers[0].StartupProbe = &v1.Probe{FailureThreshold: 1}
		c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"startup": {From: from}}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.Downs = []Down{{l.at(10), l.at(10.2)}}
			if l == &u {
				l.call(14, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
			} else {
				l.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
			}
		}
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("fails from %s: %q, want %q", from, got, root)
		}
	}
}

// Only upstream's kubelet stops a container whose startup probe has failed once. That is a decided (intended) difference if the probe of the instance
// before, whose image was changed, had failed too, and both together are as many failures as the threshold.
func TestFailuresOfTheInstanceBefore(t *testing.T) {
	for threshold, root := range map[int32]string{3: classCarriedOver, 8: "", 1: ""} {
		c := oneContainer()
		c.Acts = []Act{{At: 4 * second, Do: SetImage, Container: "main-0"}}
		c.Spec.Containers[0].StartupProbe = &v1.Probe{FailureThreshold: threshold, InitialDelaySeconds: 3}
		c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"startup": {To: 4 * second}}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(4, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
			l.runs(4.1, "main-0", 1)
		}
		u.call(7.1, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 8})
		w.call(40, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 8})
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("a threshold of %d: %q, want %q", threshold, got, root)
		}
	}
}

// A container that ignores SIGTERM exits by itself during its grace period, or is killed at its end: the times of its starts decide that.
func TestAnExitInAGracePeriodThatIsIgnored(t *testing.T) {
	for runs, itself := range map[time.Duration]bool{12 * second: true, 15 * second: false} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: runs, Code: 3, Term: TermIgnored}}}
		u, w := newLife(), newLife()
		u.runs(37.8, "main-0", 1)
		w.runs(34.1, "main-0", 1)
		for _, l := range []*life{&u, &w} {
			l.call(40, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 8})
		}
		if got := newDiffer(c, u.Trace, w.Trace, never).lastEndsItself("main-0"); got != itself {
			t.Errorf("runs for %v: %t, want %t", runs, got, itself)
		}
	}
}

// Two containers start late by decision. An instance of the second that one agent does not come to any more is a consequence, too.
func TestTheSecondLateContainer(t *testing.T) {
	for late, class := range map[float64][]string{
		21: {"time of StartContainer of main#2 after an exit, which followed a stop: Wherry is later"},
		12: {"calls of main: only upstream has a further instance"},
	} {
		c := twoContainers()
		c.Plays = map[string][]Play{"main-1": {{}, {Exits: true, Runs: 6 * second, Code: 1}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(0, "main-1", 0)
			l.call(5, Call{Verb: "StopContainer", Container: "main-1", Timeout: 2})
			l.runs(5.1, "main-1", 1)
		}
		u.runs(11.8, "main-1", 2)
		u.runs(32, "main-1", 3)
		w.runs(late, "main-1", 2)
		if late == 21 { // another container is late before
			for _, l := range []*life{&u, &w} {
				l.call(1, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2})
				l.runs(1.1, "main-0", 1)
				l.call(2.1, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 2})
			}
			u.runs(2.2, "main-0", 2)
			w.runs(12.2, "main-0", 2)
			class = []string{"time of StartContainer of main#2 after a stop: Wherry is later"}
		}
		want(t, Compare(c, u.Trace, w.Trace), class...)
	}
}

// Only upstream's kubelet starts a container again. After the loss of the sandbox, this is a decided (intended) difference if the container's
// own restartPolicy is Never.
func TestAPolicyNeverOfItsOwn(t *testing.T) {
	for policy, root := range map[v1.ContainerRestartPolicy]string{v1.ContainerRestartPolicyNever: classOwnNever, v1.ContainerRestartPolicyAlways: ""} {
		c := oneContainer()
		c.Spec.Containers[0].RestartPolicy, c.Acts = &policy, []Act{{At: 13 * second, Do: LoseSandbox}}
		u, w := newLife(), newLife()
		u.runs(14, "main-0", 1)
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("policy %s: %q, want %q", policy, got, root)
		}
	}
}

// Only upstream's kubelet shows a container in a new sandbox as not ready. That is a decided (intended) difference if the sandbox was lost, and
// the readiness probe uses the network and does not fail.
func TestAProbeOfTheOldAddress(t *testing.T) {
	const undecided = `readiness of main: only upstream has ["ready=false started=true"]`
	tcp, exec := v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}, v1.ProbeHandler{Exec: &v1.ExecAction{}}
	for _, try := range []struct {
		probe v1.ProbeHandler
		lost  bool
		class string
	}{{tcp, true, classOldAddress}, {exec, true, undecided}, {tcp, false, undecided}} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: try.probe}
		if try.lost {
			c.Acts = []Act{{At: 13 * second, Do: LoseSandbox}}
		}
		u, w := newLife(), newLife()
		u.call(13.9, Call{Verb: "RunPodSandbox"})
		u.runs(13.9, "main-0", 1)
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("readiness of main", "readiness of main-0 in the API", []span{{"1 ready=false started=true", u.at(14), 4 * second}, {"1 ready=true started=true", u.at(18), 9 * second}},
			[]span{{"1 ready=true started=true", u.at(14), 9 * second}})
		want(t, d.found, try.class)
	}
}

// The stop of a sidecar has an event that upstream's kubelet has at spec.containers: a decided (intended) difference. It is another one if
// Wherry has no such event.
func TestTheEventOfAStoppedSidecar(t *testing.T) {
	const right, wrong = "Normal Killing spec.initContainers{side-0}", "Normal Killing spec.containers{side-0}"
	for told, class := range map[bool][]string{true: {classKillsUnknown, classKillsUnknown}, false: {"event Normal Killing spec.containers{sidecar}: upstream one, Wherry none"}} {
		u, w := newLife(), newLife()
		u.Events[wrong] = Event{Count: 1, Message: "Stopping container side-0"}
		if told {
			w.Events[right] = Event{Count: 1, Message: "Stopping container side-0"}
		}
		want(t, Compare(withSidecar(), u.Trace, w.Trace), class...)
	}
}

// A killed agent may lose events from before the kill. An event from after it, another number of events, or an event that an agent which was
// asked to end does not have, is a difference.
func TestAnEventOfAKilledAgent(t *testing.T) {
	for _, try := range []struct {
		kill  bool
		u     int
		at    float64
		found int
	}{{true, 0, 18, 0}, {false, 0, 18, 1}, {true, 3, 18, 1}, {true, 0, 25, 1}} {
		c := oneContainer()
		c.Kind, c.Kill = Restart, try.kill
		u, w := newLife(), newLife()
		u.Downs, w.Downs = []Down{{u.at(20), u.at(20.2)}}, []Down{{w.at(20), w.at(20.2)}}
		w.Events["Normal Started spec.containers{main-0}"] = Event{Count: 1, Message: "Container started", First: w.at(try.at)}
		if try.u > 0 {
			u.Events["Normal Started spec.containers{main-0}"] = Event{Count: try.u, Message: "Container started"}
		}
		if got := Compare(c, u.Trace, w.Trace); len(got) != try.found {
			t.Errorf("%+v: %q", try, classes(got))
		}
	}
}

// Only Wherry tells that it pulls the image of a container that neither agent made. If it did so in the last five seconds of the pod, the
// other agent did not come to it.
func TestAPullInTheEnd(t *testing.T) {
	for at, found := range map[float64]int{38: 0, 20: 1} {
		c := twoContainers()
		u, w := newLife(), newLife()
		w.Events["Normal Pulling spec.containers{main-1}"] = Event{Count: 1, Message: "Pulling image", First: w.at(at)}
		if got := Compare(c, u.Trace, w.Trace); len(got) != found {
			t.Errorf("in second %g: %q", at, classes(got))
		}
	}
}

// A container exits while upstream's kubelet waits for the end of another one, and Wherry tells of the image for its next instance, which the
// pod's deletion prevents: a decided (intended) difference. Without that wait it is undecided.
func TestAPullDuringAStop(t *testing.T) {
	for stops, class := range map[bool]string{true: classWhileStop, false: "event Normal Pulled spec.containers{main}: upstream one, Wherry several"} {
		c := twoContainers()
		c.Plays = map[string][]Play{"main-1": {{Exits: true, Runs: 34 * second}}, "main-0": {{Term: TermIgnored}}}
		u, w := newLife(), newLife()
		for l, n := range map[*life]int{&u: 1, &w: 2} {
			l.runs(1, "main-1", 0)
			if stops {
				l.call(33, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
			}
			l.call(41, Call{Verb: "StopPodSandbox"})
			l.Events["Normal Pulled spec.containers{main-1}"] = Event{Count: n, Message: "present"}
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.events()
		want(t, d.found, class)
	}
}

// A readiness probe begins to fail soon after it is first asked, or ceases to fail soon before the stop. Whether an agent sees it succeed
// depends on the timing. If it succeeds for long, an agent that does not tell of it differs.
func TestAProbeThatSucceedsByChance(t *testing.T) {
	const undecided = `readiness of main: only Wherry has ["ready=true started=true"]`
	for _, try := range []struct {
		what  string
		fails Window
		hook  time.Duration
		succ  int32
		class []string
	}{
		{"at the first probe", Window{From: second}, 0, 1, nil},
		{"with three successes after a hook", Window{From: 5 * second}, 3 * second, 3, nil},
		{"for four seconds", Window{From: 5 * second}, 0, 1, []string{undecided}},
		{"a second before the stop", Window{To: 38 * second}, 0, 1, nil},
		{"ten seconds before the stop", Window{To: 29 * second}, 0, 1, []string{undecided}},
	} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe = &v1.Probe{SuccessThreshold: try.succ}
		c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"readiness": try.fails}, Slow: map[string]time.Duration{"postStart": try.hook}}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		unready := span{"0 ready=false started=true", u.at(1), 30 * second}
		d.series("readiness of main", "readiness of main-0 in the API", []span{unready}, []span{unready, {"0 ready=true started=true", w.at(4), 3 * second}})
		if got := classes(d.found); len(got) != len(try.class) || len(got) > 0 && got[0] != try.class[0] {
			t.Errorf("%s: %q, want %q", try.what, got, try.class)
		}
	}
}

// Only Wherry shows the failed pull before a back-off that both show: the back-off says the same.
func TestAFailedPullBeforeItsBackOff(t *testing.T) {
	for shown, class := range map[string][]string{"ImagePullBackOff": nil, "ContainerCreating": {`states of main: only Wherry has ["waiting ErrImagePull"]`}} {
		u, w := newLife(), newLife()
		d := newDiffer(oneContainer(), u.Trace, w.Trace, never)
		waits := span{"waiting 0 " + shown, u.at(5), 20 * second}
		d.series("states of main", "states of main-0 in the API", []span{waits}, []span{{"waiting 0 ErrImagePull", w.at(1), 4 * second}, waits})
		want(t, d.found, class...)
	}
}

// An ephemeral container is added to a pod, and only Wherry's last status has it. That is a decided (intended) difference if the pod had ended.
func TestAnEphemeralContainerOfAnEndedPod(t *testing.T) {
	const class = "last status of ephemeral, changed after its pod's end: only Wherry has one"
	for phase, decided := range map[v1.PodPhase]bool{v1.PodFailed: true, v1.PodRunning: false} {
		c := oneContainer()
		c.Acts = []Act{{At: 20 * second, Do: Debug, Container: "debug"}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.status(5, phase, "", v1.ContainerState{})
		}
		w.last().Status.EphemeralContainerStatuses = []v1.ContainerStatus{{Name: "debug", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.fields("last status of ephemeral", "last status of debug", u.final("debug"), w.final("debug"), "debug")
		if hasClass(d.found, class) != decided || decided && len(d.found) != 1 {
			t.Errorf("phase %s: %q", phase, classes(d.found))
		}
	}
}

// One of the two pods ended before the agents were restarted, so that only the other one lived to see it: the case has a Crossing.
func TestARestartOfOneAgentAlone(t *testing.T) {
	for _, both := range []bool{false, true} {
		c := oneContainer()
		c.Kind = Restart
		u, w := newLife(), newLife()
		u.Downs = []Down{{u.at(20), u.at(20.2)}}
		if both {
			w.Downs = u.Downs
		}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) == both {
			t.Errorf("both %t: crossing %+v", both, v.Crossing)
		}
	}
}

// Wherry starts a main container later by decision, so that it still runs at the pod's deletion and leaves the sidecar less time.
func TestASidecarAfterADecidedDelay(t *testing.T) {
	for kind, classes := range map[Kind][]string{
		Restart: {"time of StartContainer of main after an exit, after a restart of the agents: Wherry is later"},
		Life:    {`calls of sidecar: only upstream has ["stop(8)"], only Wherry has ["stop(2)"]`, "time of StartContainer of main#1 after an exit: Wherry is later"},
	} {
		c := withSidecar()
		c.Kind, c.Plays = kind, map[string][]Play{"main-0": {{Exits: true, Runs: 9 * second}}}
		u, w := newLife(), newLife()
		for l, again := range map[*life]float64{&u: 20, &w: 28} {
			l.runs(1, "side-0", 0)
			l.runs(again, "main-0", 1)
		}
		u.call(40, Call{Verb: "StopContainer", Container: "side-0", Timeout: 8})
		w.call(41, Call{Verb: "StopContainer", Container: "side-0", Timeout: 2})
		want(t, Compare(c, u.Trace, w.Trace), classes...)
	}
}

// A restart of the agents interrupts the stop of a container that failed its startup probe. Wherry stops it again. That is a decided (intended)
// difference if upstream's kubelet does not, or does so only at the pod's end; it is none if the probe had not failed.
func TestAFailedProbeIsForgotten(t *testing.T) {
	for _, try := range []struct {
		fails time.Duration
		again float64 // when upstream's kubelet stops the container again; 0: never
		root  string
	}{{0, 0, classStopForgotten}, {0, 30, classStopForgotten}, {0, 10, ""}, {20 * second, 0, ""}} {
		c := oneContainer()
		c.Kind, c.Plays = Restart, map[string][]Play{"main-0": {{Term: TermIgnored, Fails: map[string]Window{"startup": {From: try.fails, To: try.fails + 7*second}}}}}
		c.Spec.Containers[0].StartupProbe = &v1.Probe{InitialDelaySeconds: 3, FailureThreshold: 1}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(3.9, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8, Failed: true})
		}
		w.call(9, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		if try.again > 0 {
			u.call(try.again, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		}
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != try.root {
			t.Errorf("%+v: %q", try, got)
		}
	}
}

// Wherry starts a main container later by decision, and the pod of upstream's kubelet ends before. Then only Wherry restarts a sidecar that
// exits. If the pod of upstream's kubelet goes on, that is an undecided difference.
func TestASidecarOfAPodThatADecidedDelayProlongs(t *testing.T) {
	for ends, class := range map[float64][]string{15: nil, 40: {"calls of sidecar: only Wherry has a further instance"}} {
		c := withSidecar()
		c.Kind, c.Spec.RestartPolicy = Restart, v1.RestartPolicyOnFailure
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 9 * second}, {Exits: ends < 40, Runs: second}}}
		u, w := newLife(), newLife()
		for l, again := range map[*life]float64{&u: 12, &w: 28} {
			l.runs(1, "side-0", 0)
			l.runs(again, "main-0", 1)
		}
		u.call(ends, Call{Verb: "StopContainer", Container: "side-0", Timeout: 8})
		w.runs(20, "side-0", 1)
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.late = d.times()
		d.callsOf("side-0")
		want(t, d.found, class...)
		if d.outlivesByDecision("debug", nil, w.instances("side-0")[1]) {
			t.Error("an ephemeral container, whose start has a decision of its own, is excused like a sidecar")
		}
	}
}

// A container fails its liveness probe, which has a grace period of its own, and becomes ready meanwhile. It is no difference that only
// upstream's kubelet, which gives it the pod's grace period, shows that after the time at which Wherry kills it.
func TestAContainerThatBecomesReadyInALongerGracePeriod(t *testing.T) {
	for at, class := range map[float64][]string{9.5: nil, 8: {`readiness of main while the pod ends: only upstream has ["ready=true started=true"]`}} {
		c := oneContainer()
		c.Spec.TerminationGracePeriodSeconds = new(int64(8))
		c.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(3))}
		u, w := newLife(), newLife()
		u.call(6, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		w.call(5, Call{Verb: "StopContainer", Container: "main-0", Timeout: 3})
		d := newDiffer(c, u.Trace, w.Trace, never)
		unready := span{"0 ready=false started=true", u.at(1), 7 * second}
		d.series("readiness of main", "readiness of main-0 in the API", []span{unready, {"0 ready=true started=true", u.at(at), 4 * second}}, []span{unready})
		want(t, d.found, class...)
	}
}

// Upstream's kubelet makes a sidecar in a sandbox that is lost, and tells of the failure: a decided (intended) difference. A start that fails
// for another reason is none.
func TestAStartOfASidecarInALostSandbox(t *testing.T) {
	for message, decided := range map[string]bool{`Error: sandbox container "4c56ed3e3a56" is not running`: true, "Error: no space left": false} {
		u, w := newLife(), newLife()
		u.Events["Warning Failed spec.initContainers{side-0}"] = Event{Count: 1, First: u.at(8), Message: message}
		d := newDiffer(withSidecar(), u.Trace, w.Trace, never)
		d.events()
		if len(d.found) != 1 || Decided(d.found[0].Class) != decided {
			t.Errorf("%s: %q, want decided %t", message, classes(d.found), decided)
		}
	}
}

// A restart of the agents interrupts the stop of a sidecar that failed its startup probe. Upstream's kubelet stops it soon after Wherry, for the
// pod's deadline. That is the same decided difference if only the kubelet showed before that the sidecar had started.
func TestAFailedProbeThatIsShownAsSucceeded(t *testing.T) {
	for _, try := range []struct{ u, w, decided bool }{{true, false, true}, {false, false, false}, {true, true, false}} {
		c := withSidecar()
		c.Kind, c.Plays = Restart, map[string][]Play{"side-0": {{Term: TermIgnored, Fails: map[string]Window{"startup": {To: 4 * second}}}}}
		c.Spec.InitContainers[0].StartupProbe = &v1.Probe{FailureThreshold: 3}
		u, w := newLife(), newLife()
		for l, started := range map[*life]bool{&u: try.u, &w: try.w} {
			l.runs(1, "side-0", 0)
			l.shows(1.1, false, false, "")
			l.call(4, Call{Verb: "StopContainer", Container: "side-0", Timeout: 8, Failed: true})
			l.shows(8.5, started, started, "PodFailed")
		}
		w.call(9.4, Call{Verb: "StopContainer", Container: "side-0", Timeout: 8})
		u.call(11.5, Call{Verb: "StopContainer", Container: "side-0", Timeout: 8})
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); (got == classStopForgotten) != try.decided {
			t.Errorf("%+v: %q", try, got)
		}
	}
}

// A container of a pod that has ended waits for its image. Upstream's kubelet no longer shows that after a restart of the agents: a decided
// (intended) difference. It is none if the pod goes on, if the agents were not restarted, or if Wherry shows something else too.
func TestAWaitForAnImageThatIsForgotten(t *testing.T) {
	waits := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	const undecided = `last status of main, state: upstream "waiting ContainerCreating", Wherry "waiting `
	for _, try := range []struct {
		phase v1.PodPhase
		downs bool
		last  string // what Wherry shows at the end
		class string
	}{
		{v1.PodFailed, true, "ImagePullBackOff", classPullForgotten},
		{v1.PodPending, true, "ImagePullBackOff", undecided + `ImagePullBackOff"`},
		{v1.PodFailed, false, "ImagePullBackOff", undecided + `ImagePullBackOff"`},
		{v1.PodFailed, true, "CreateContainerError", undecided + `CreateContainerError"`},
	} {
		u, w := newLife(), newLife()
		for l, last := range map[*life]string{&u: "ContainerCreating", &w: try.last} {
			l.Calls = l.Calls[:1]
			l.call(8.1, Call{Verb: "StopPodSandbox"})
			l.status(1, v1.PodPending, "", waits("ErrImagePull"))
			l.status(2, v1.PodPending, "", waits("ImagePullBackOff"))
			l.status(8.2, try.phase, "", waits("ImagePullBackOff"))
			if try.downs {
				l.Downs = []Down{{l.at(15), l.at(15.2)}}
			}
			l.status(18, try.phase, "", waits(last))
		}
		c := oneContainer()
		c.Kind = Restart
		got := Compare(c, u.Trace, w.Trace)
		if !hasClass(got, try.class) || try.class == classPullForgotten && undecidedOf(got) > 0 {
			t.Errorf("%+v: %q", try, classes(got))
		}
	}
}

// As above, for a container that exits before upstream's kubelet looks at the pod again: only Wherry shows all containers of the pod as ready.
func TestAConditionOfAProbeOfTheOldAddress(t *testing.T) {
	tcp, exec := v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}, v1.ProbeHandler{Exec: &v1.ExecAction{}}
	for _, try := range []struct {
		probe v1.ProbeHandler
		class string
	}{{tcp, classOldAddress}, {exec, `condition Ready: only Wherry has ["True"]`}} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe, c.Acts = &v1.Probe{ProbeHandler: try.probe}, []Act{{At: 13 * second, Do: LoseSandbox}}
		u, w := newLife(), newLife()
		for l, ready := range map[*life]bool{&u: false, &w: true} {
			l.call(13.9, Call{Verb: "RunPodSandbox"})
			l.runs(13.9, "main-0", 1)
			started := true
			runs := v1.ContainerStatus{Name: "main-0", RestartCount: 1, Ready: ready, Started: &started, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
			l.Statuses = append(l.Statuses, Seen{l.at(14), &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{runs}}}})
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("condition Ready", "condition Ready in the API", []span{{"False ContainersNotReady", u.at(14), 9 * second}},
			[]span{{"True", w.at(14), 3 * second}, {"False ContainersNotReady", w.at(17), 6 * second}})
		want(t, d.found, try.class)
	}
}
