package differ

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// states adds to the trace a version of the pod that the API had at the given second. A container runs if running[its name] is true;
// otherwise it waits.
func (l life) states(second float64, running map[string]bool) {
	p := &v1.Pod{}
	for _, name := range []string{"main-0", "main-1"} {
		s := v1.ContainerStatus{Name: name}
		if running[name] {
			s.State.Running = &v1.ContainerStateRunning{}
		} else {
			s.State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	l.Statuses = append(l.Statuses, Seen{l.at(second), p})
}

// reportedLate returns a case of a pod with two main containers, and its traces from upstream's kubelet (u) and Wherry (w). Upstream's
// kubelet reports 5.4 s later than Wherry that main-0 runs. If stopped is true, both agents stop main-1 at the beginning of this time.
func reportedLate(stopped bool) (c *Case, u, w life) {
	c = &Case{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main-0"}, {Name: "main-1"}}},
		Plays: map[string][]Play{"main-1": {{Term: TermIgnored}}}}
	u, w = newLife(), newLife()
	for _, l := range []*life{&u, &w} {
		l.call(1, Call{Verb: "CreateContainer", Container: "main-1"})
		l.call(1, Call{Verb: "StartContainer", Container: "main-1"})
		if stopped {
			l.call(1.1, Call{Verb: "StopContainer", Container: "main-1", Timeout: 5})
		}
	}
	u.states(1, nil)
	u.states(6.4, map[string]bool{"main-0": true})
	w.states(1, map[string]bool{"main-0": true})
	return c, u, w
}

// Upstream's kubelet reports that a container runs only after the stop of another container. This difference has a class of its own.
// Without that stop the delay is an undecided (unintended) difference.
func TestAContainerIsReportedAfterTheStopOfAnother(t *testing.T) {
	for stopped, class := range map[bool]string{
		true:  classReportedAfterStop,
		false: `states of main: only upstream has ["waiting ContainerCreating"]`,
	} {
		c, u, w := reportedLate(stopped)
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// Upstream's kubelet stops a container that has already exited, because its network liveness probe got no answer. Everything after that
// differs, so the comparison reports only the class of this decided (intended) difference. If the probe is a command, it reports another
// class.
func TestADeadContainerThatIsProbed(t *testing.T) {
	for _, asks := range []bool{true, false} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 12 * time.Second}}}
		c.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: asking("tcp", "main-0", "liveness")}
		class := classDeadProbed
		if !asks {
			c.Spec.Containers[0].LivenessProbe.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{}}
			class = "time of StartContainer of main#2 after an exit: Wherry is later"
		}
		u, w := newLife(), newLife()
		u.call(14, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5, Late: true})
		for l, again := range map[*life][]float64{&u: {14, 26}, &w: {13, 35}} {
			for i, at := range again {
				l.call(at, Call{Verb: "CreateContainer", Container: "main-0", Attempt: uint32(i + 1)})
				l.call(at, Call{Verb: "StartContainer", Container: "main-0", Attempt: uint32(i + 1)})
			}
		}
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// A container with restartPolicy OnFailure completes, and both agents stop it too late. Only upstream's kubelet takes the failed probe for a reason to
// start it again. If Wherry's stop comes while the container runs, or the probe is a command, the comparison reports another class.
func TestACompletedContainerThatIsProbed(t *testing.T) {
	const undecided = "calls of main: only upstream has a further instance"
	network, command := asking("http", "main-0", "liveness"), v1.ProbeHandler{Exec: &v1.ExecAction{}}
	for name, try := range map[string]struct {
		late              bool
		liveness, startup *v1.Probe
		class             string
	}{
		"a liveness probe":              {true, &v1.Probe{ProbeHandler: network}, nil, classDeadProbed},
		"a startup probe":               {true, &v1.Probe{ProbeHandler: command}, &v1.Probe{ProbeHandler: network}, classDeadProbed},
		"Wherry stops it while it runs": {false, &v1.Probe{ProbeHandler: network}, nil, undecided},
		"the probe is a command":        {true, &v1.Probe{ProbeHandler: command}, nil, undecided},
	} {
		c := twoContainers()
		c.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 12 * second}}}
		c.Spec.Containers[0].LivenessProbe, c.Spec.Containers[0].StartupProbe = try.liveness, try.startup
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} { // another container keeps the pod alive
			l.runs(1, "main-1", 0)
		}
		u.call(13, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5, Late: true})
		w.call(13, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5, Late: try.late})
		u.runs(13, "main-0", 1)
		if got := Compare(c, u.Trace, w.Trace); len(got) != 1 || got[0].Class != try.class {
			t.Errorf("%s: %q, want %q", name, classes(got), try.class)
		}
	}
}

// Of a static pod with restartPolicy OnFailure only main-1 has to run again on upstream's kubelet when the manifest comes back, because main-0 completed
// when the manifest was removed. Wherry runs both again, which is a decided (intended) difference. Without the removal it is none.
func TestAContainerOfAStaticPodThatRunsAgain(t *testing.T) {
	for first, class := range map[Deed]string{RemoveFile: classEndedStatic, Debug: "calls of main: only Wherry has an instance"} {
		c := twoContainers()
		c.Kind, c.Spec.RestartPolicy = Static, v1.RestartPolicyOnFailure
		c.Acts = []Act{{At: 14 * second, Do: first}, {At: 14 * second, Do: WriteFile}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(1, "main-1", 0)
			l.ready(2, v1.ConditionTrue, "")
			l.call(16, Call{Verb: "RunPodSandbox"})
			l.runs(16, "main-1", lifeAttempts)
		}
		w.runs(16, "main-0", lifeAttempts)
		if got := Compare(c, u.Trace, w.Trace); len(got) == 0 || got[0].Class != class {
			t.Errorf("%s: %q, want %q", first, classes(got), class)
		}
	}
}

// A liveness probe begins after three seconds, and fails until the fourth, so it depends on the timing whether an agent sees it fail. Upstream's kubelet does,
// and Wherry does not. Upstream's stop may come a little before the third second, because it counts from the whole second in which the container
// started, and a while later, because it waits for a hook of another container.
func TestAStopAfterAProbeThatMayFail(t *testing.T) {
	for name, try := range map[string]struct {
		stop, hook float64
		crossed    bool
	}{
		"before the third second": {3.9, 0, true},
		"after a hook":            {11.1, 3.9, true},
		"too late":                {11.1, 0, false},
	} {
		c := twoContainers()
		c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"liveness": {0, 4 * second}}}}, "main-1": {{Slow: map[string]time.Duration{"postStart": 7 * second}}}}
		c.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: asking("http", "main-0", "liveness"), InitialDelaySeconds: 3, FailureThreshold: 1}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(1, "main-1", 0)
		}
		if try.hook > 0 {
			u.call(try.hook, Call{Verb: "ExecSync", Command: "postStart", Container: "main-1"})
		}
		u.call(try.stop, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
		u.runs(try.stop, "main-0", 1)
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != try.crossed {
			t.Errorf("%s: crossing %+v, want one: %t", name, v.Crossing, try.crossed)
		}
	}
}

// Upstream's kubelet stops an instance within a second of its start, and so shows nothing of its readiness. Wherry stopped it later.
func TestReadinessOfAnInstanceThatIsStoppedAtOnce(t *testing.T) {
	for stop, classes := range map[float64][]string{8.2: nil, 10.5: {`readiness of main: only Wherry has ["ready=false started=false"]`}} {
		u, w := newLife(), newLife()
		for l, began := range map[*life]float64{&u: 8, &w: 7} {
			l.runs(1, "main-1", 0)
			l.call(began, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
			l.runs(began, "main-0", 1)
		}
		u.call(stop, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 5})
		d := newDiffer(twoContainers(), u.Trace, w.Trace, never)
		d.series("readiness of main", "readiness of main-0 in the API", []span{{"0 ready=true started=true", u.at(3), 7 * second}}, []span{
			{"0 ready=true started=true", w.at(3), 4 * second}, {"1 ready=false started=false", w.at(7), 3 * second},
		})
		want(t, d.found, classes...)
	}
}

// The stop of one of two main containers is not the beginning of the pod's end, because the other container keeps running.
func TestThePodsEndBeginsWhenNoMainContainerRunsOn(t *testing.T) {
	l := newLife()
	l.call(1, Call{Verb: "StartContainer", Container: "main-1"})
	l.call(10, Call{Verb: "StopContainer", Container: "main-1", Timeout: 5})
	d := &differ{c: twoContainers()}
	if got := d.ends(l.Trace); !got.Equal(l.Deleted) {
		t.Errorf("the end begins %s after the start, want the deletion", got.Sub(l.start))
	}
	l.call(11, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
	if got := d.ends(l.Trace).Sub(l.start); got != 10*time.Second {
		t.Errorf("the end begins %s after the start, want 10s", got)
	}
}

// ended adds to the trace a version of the pod at the given second. Its container shows the exit code code in state, and before in
// lastState.
func (l life) ended(second float64, code, before int32) {
	end := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: code}}
	}
	p := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main-0", State: end(code), LastTerminationState: end(before)}}}}
	l.Statuses = append(l.Statuses, Seen{l.at(second), p})
}

// Upstream's last status shows the same end of a container in state and in lastState. That is a decided (intended) difference if Wherry's
// lastState shows an earlier end that upstream's kubelet had reported too; otherwise it is undecided.
func TestAnEndThatIsShownTwice(t *testing.T) {
	for reported, class := range map[int32]string{
		3: "last status of main, lastState: upstream repeats the end that is its state, Wherry has the one before",
		4: `last status of main, lastState: upstream "terminated Error 137", Wherry "terminated Error 3"`,
	} {
		u, w := newLife(), newLife()
		u.ended(9, reported, reported)
		w.ended(9, reported, reported)
		u.ended(10, 137, 137)
		w.ended(10, 137, 3)
		want(t, Shown(Compare(oneContainer(), u.Trace, w.Trace)), without(class, "last status of main, lastState: upstream repeats the end that is its state, Wherry has the one before")...)
	}
}

// Upstream's kubelet replaces an end of a container that it had reported by ContainerStatusUnknown in state, and shows the reported end
// in lastState: a decided (intended) difference. If lastState shows another end, the difference is undecided.
func TestAnEndThatGivesWayToAnUnknownOne(t *testing.T) {
	const class = "last status of main, lastState: upstream has the end there whose place ContainerStatusUnknown took"
	for reported, found := range map[int32]string{137: class, 3: `last status of main, lastState: upstream "terminated Error 3", Wherry "none"`} {
		u, w := newLife(), newLife()
		u.ended(8, 137, 3)
		u.ended(9, 137, reported)
		w.ended(9, 137, 0)
		u.Statuses[1].Pod.Status.ContainerStatuses[0].State.Terminated.Reason = unknownEnd
		w.Statuses[0].Pod.Status.ContainerStatuses[0].LastTerminationState = v1.ContainerState{}
		if got := Compare(oneContainer(), u.Trace, w.Trace); !hasClass(got, found) {
			t.Errorf("an end with %d: %q, want %q", reported, classes(got), found)
		}
	}
	if !Decided(class) {
		t.Error("the class is not decided")
	}
}

// A container that was never made is shown with an end of which nobody knows, twice by upstream's kubelet: once for each life of its static pod.
// Nothing gave way to that end, so it is another decided (intended) difference.
func TestAnUnknownEndThatIsRepeated(t *testing.T) {
	c := oneContainer()
	c.Spec.InitContainers = []v1.Container{{Name: "init-0"}}
	const message = "The container could not be located when the pod was terminated"
	unknown := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: unknownEnd, Message: message}}
	u, w := newLife(), newLife()
	for l, last := range map[*life]v1.ContainerState{&u: unknown, &w: {}} {
		l.Statuses = append(l.Statuses, Seen{l.at(39), &v1.Pod{Status: v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "init-0", State: unknown, LastTerminationState: last}}}}})
	}
	found := Compare(c, u.Trace, w.Trace)
	want(t, found, `last status of init, lastState: upstream "terminated ContainerStatusUnknown 137 `+message+`", Wherry "none"`)
	if len(found) != 1 || !Decided(found[0].Class) {
		t.Error("the class is not decided")
	}
}

// Three things in a configuration differ on every node and are not compared: host IDs of user namespaces, the name of the token volume,
// and the order of DNS options. A missing host ID or another option is a difference.
func TestWhatDiffersByNatureInAConfiguration(t *testing.T) {
	const gids = "linux.securityContext.namespaceOptions.usernsOptions.gids[0].hostId"
	for name, try := range map[string]struct {
		upstream, wherry Config
		found            bool
	}{
		"host IDs":          {Config{gids: "65536"}, Config{gids: "131072"}, false},
		"no host ID":        {Config{gids: "65536"}, Config{}, true},
		"the token's name":  {Config{"mounts[/t].hostPath": "/v/kube-api-access-abcde"}, Config{"mounts[/t].hostPath": "/v/kube-api-access-12345"}, false},
		"an option":         {Config{"dnsConfig.options[0]": "ndots:2"}, Config{"dnsConfig.options[0]": "ndots:5"}, true},
		"the mapped own ID": {Config{"x.gids[0].containerId": "1"}, Config{"x.gids[0].containerId": "2"}, true},
	} {
		u, w := newLife(), newLife()
		u.Configs, w.Configs = map[string]Config{"sandbox": try.upstream}, map[string]Config{"sandbox": try.wherry}
		if got := len(Compare(oneContainer(), u.Trace, w.Trace)) > 0; got != try.found {
			t.Errorf("%s: a difference %t, want %t", name, got, try.found)
		}
	}
	a := ConfigOf(&runtimeapi.PodSandboxConfig{DnsConfig: &runtimeapi.DNSConfig{Options: []string{"ndots:2", "edns0"}}})
	b := ConfigOf(&runtimeapi.PodSandboxConfig{DnsConfig: &runtimeapi.DNSConfig{Options: []string{"edns0", "ndots:2"}}})
	if !maps.Equal(a, b) || len(a) != 2 {
		t.Errorf("the order of the options counts, or they are lost: %v, %v", a, b)
	}
}

// A failed postStart hook and the slow stop after it count as one time during which upstream's kubelet is blocked.
func TestAHookAndItsStopAreOneHold(t *testing.T) {
	c := twoContainers()
	c.Plays["main-0"][0].Term, c.Plays["main-0"][0].Fails = TermSlow, map[string]Window{"postStart": {}}
	l := newLife()
	l.call(1, Call{Verb: "StartContainer", Container: "main-1"})
	l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
	l.call(13, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
	d := &differ{c: c}
	holds := d.hookHolds(l.Trace, "main-1")
	if len(holds) != 1 || !holds[0].to.Equal(l.at(14.5)) {
		t.Errorf("held %+v, want once until second 14.5", holds)
	}
	if holds := d.hookHolds(l.Trace, "main-0"); len(holds) != 0 {
		t.Errorf("the container holds up itself: %+v", holds)
	}
}

// A restart of the agents interrupts the stop of a container whose postStart hook failed. Only Wherry stops the container again: a decided
// difference.
func TestAFailedHookIsForgotten(t *testing.T) {
	for kind, class := range map[Kind]string{
		Restart: classHookForgotten,
		Life:    "time of StopContainer of main#0, in a pod with a postStart hook: Wherry is later",
	} {
		c := oneContainer()
		c.Kind, c.Plays = kind, map[string][]Play{"main-0": {{Fails: map[string]Window{"postStart": {}}}}}
		c.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
		u, w := newLife(), newLife()
		u.call(2, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5, Failed: true})
		w.call(9, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
		want(t, Shown(Compare(c, u.Trace, w.Trace)), notIn([]string{class}, []string{classHookForgotten})...)
	}
}

// Only Wherry shows a back-off, which is a decided (intended) difference. Upstream's kubelet also reports another container only after a
// stop. With that stop, the late report is decided too; without it, the late report is an undecided difference, although the back-off is
// still decided.
func TestABackOffBesideAnotherDifference(t *testing.T) {
	for stopped, shown := range map[bool][]string{true: nil, false: {`states of main: only upstream has ["waiting ContainerCreating"], only Wherry has ["running"]`}} {
		c, u, w := reportedLate(stopped)
		w.states(10, nil)
		w.Statuses[1].Pod.Status.ContainerStatuses[0].State.Waiting.Reason = "CrashLoopBackOff"
		w.states(15, map[string]bool{"main-0": true})
		want(t, Shown(Compare(c, u.Trace, w.Trace)), shown...)
	}
}

// The event of upstream's kubelet about a resize may give the size from before the resize: a decided (intended) difference. Any other
// wrong size is an undecided difference.
func TestTheSizeInTheEventOfAResize(t *testing.T) {
	for size, decided := range map[string]bool{"1m": true, "3m": false} {
		c := oneContainer()
		c.Spec.Containers[0].Resources.Requests = cpu("1m")
		c.Acts = []Act{{At: 10 * time.Second, Do: Resize, Container: "main-0", Value: "2m"}}
		u, w := newLife(), newLife()
		for l, size := range map[*life]string{&u: size, &w: "2m"} {
			l.Events["Normal ResizeCompleted "] = Event{Count: 1, Message: `Pod resize completed: {"containers":[{"resources":{"requests":{"cpu":"` + size + `"}}}]}`}
		}
		if got := Compare(c, u.Trace, w.Trace); hasClass(got, classOldSize) != decided || len(got) != 1 {
			t.Errorf("the size %s: %q", size, classes(got))
		}
	}
}
