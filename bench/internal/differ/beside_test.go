package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status adds to the trace a version of the pod that the API had at the given second: with a phase, a reason and, unless state is zero, a
// state of the container main-0.
func (l life) status(second float64, phase v1.PodPhase, reason string, state v1.ContainerState) {
	start := metav1.NewTime(l.start)
	p := &v1.Pod{Status: v1.PodStatus{Phase: phase, Reason: reason, StartTime: &start}}
	if state != (v1.ContainerState{}) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main-0", State: state}}
	}
	l.Statuses = append(l.Statuses, Seen{l.at(second), p})
}

// activeDeadlineSeconds passes while the pod is already ending, and only upstream's kubelet reports the reason DeadlineExceeded: a
// decided (intended) difference with a class of its own. If the deadline passes before the pod's end begins, the comparison reports the
// single differences of the status.
func TestADeadlineInTheEnd(t *testing.T) {
	c := oneContainer()
	c.Spec.ActiveDeadlineSeconds = new(int64(45))
	u, w := newLife(), newLife()
	for _, l := range []life{u, w} {
		l.Ended = l.at(60)
		l.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		l.status(2, v1.PodRunning, "", v1.ContainerState{})
	}
	u.status(48, v1.PodFailed, "DeadlineExceeded", v1.ContainerState{})
	w.status(48, v1.PodSucceeded, "", v1.ContainerState{})
	want(t, Compare(c, u.Trace, w.Trace), classDeadlineInTheEnd)
	c.Spec.ActiveDeadlineSeconds = new(int64(35))
	if got := classes(Compare(c, u.Trace, w.Trace)); len(got) < 2 {
		t.Errorf("a deadline before the end is taken for one in it: %v", got)
	}
}

// Upstream's kubelet reports the status of a container only after the postStart hook of another container. The difference gets the class
// for this delay. Without a hook it gets the class of an undecided (unintended) difference.
func TestWhatIsReportedAfterAHook(t *testing.T) {
	for hook, class := range map[bool]string{true: classReportedAfterHook, false: `states of main: only upstream has ["waiting ContainerCreating"]`} {
		c := twoContainers()
		c.Plays = map[string][]Play{}
		if hook {
			c.Plays["main-1"] = []Play{{Slow: map[string]time.Duration{"postStart": 3 * time.Second}}}
		}
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.call(1, Call{Verb: "StartContainer", Container: "main-1"})
			l.call(1, Call{Verb: "ExecSync", Container: "main-1", Command: "postStart"})
		}
		u.status(1, v1.PodPending, "", v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}})
		u.status(4, v1.PodPending, "", v1.ContainerState{Running: &v1.ContainerStateRunning{}})
		w.status(1, v1.PodPending, "", v1.ContainerState{Running: &v1.ContainerStateRunning{}})
		want(t, Shown(Compare(c, u.Trace, w.Trace)), without(class, classReportedAfterHook)...)
	}
}

// without returns a list with the class, or nil if the class is decided, the class of an intended difference.
func without(class, decided string) []string {
	if class == decided {
		return nil
	}
	return []string{class}
}

// A network probe may run once more after its container has exited, and gets no answer: unheard returns true. If the script of the
// container closes the port, the probe has really failed, and unheard returns false.
func TestAProbeThatFindsNobody(t *testing.T) {
	const refused = "Liveness probe failed: dial tcp 127.60.0.1:8101: connect: connection refused"
	for _, try := range []struct {
		how     string
		fails   bool
		message string
		unheard bool
	}{
		{"http", true, refused, true}, {"tcp", false, refused, true}, {"tcp", true, refused, false}, {"exec", true, refused, false},
		{"http", false, "Liveness probe failed: HTTP probe failed with statuscode: 500", false},
	} {
		c := oneContainer()
		if try.how != "exec" {
			c.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: asking(try.how, "main-0", "liveness")}
		}
		if try.fails {
			c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"liveness": {}}}}}
		}
		if d := (&differ{c: c}); d.unheard("main-0", try.message) != try.unheard {
			t.Errorf("%+v: want %t", try, try.unheard)
		}
	}
}

// The phases of a static pod are compared until its manifest is removed, including the phase that the pod gets when it ends.
func TestPhasesOfAStaticPodThatEnds(t *testing.T) {
	c := oneContainer()
	c.Kind = Static
	u, w := newLife(), newLife()
	for _, l := range []life{u, w} {
		l.status(1, v1.PodRunning, "", v1.ContainerState{})
		l.call(10, Call{Verb: "StopPodSandbox"})
		l.status(11, v1.PodFailed, "", v1.ContainerState{})
	}
	want(t, Compare(c, u.Trace, w.Trace))
	w.Statuses[1].Pod.Status.Phase = v1.PodSucceeded
	if got := classes(Compare(c, u.Trace, w.Trace)); len(got) == 0 || got[0] != `phases while the pod ends: only upstream has ["Failed"], only Wherry has ["Succeeded"]` {
		t.Errorf("classes %v", got)
	}
}

// If only one agent starts an instance of a container, changes of the pod's conditions are excused, from a second before that start on.
func TestTheStatusOfAnExtraInstance(t *testing.T) {
	u, w := newLife(), newLife()
	w.call(36, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
	w.call(36, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
	for _, l := range []life{u, w} {
		l.ready(1, v1.ConditionTrue, "")
		l.ready(20, v1.ConditionFalse, "ContainersNotReady")
	}
	w.ready(35.5, v1.ConditionTrue, "")
	w.ready(42, v1.ConditionFalse, "ContainersNotReady")
	want(t, Compare(oneContainer(), u.Trace, w.Trace))
}

// When the manifest of a static pod comes back, upstream's kubelet reports a container that it has not created yet as ended for an
// unknown reason, and the pod as Running. This difference has a class of its own. With another reason it is undecided.
func TestAPodThatRunsForAnUnknownEnd(t *testing.T) {
	for reason, class := range map[string]string{unknownEnd: classRunsByUnknown, "Error": `phases: only upstream has ["Running"]`} {
		c := oneContainer()
		c.Kind = Static
		c.Acts = []Act{{At: 15 * time.Second, Do: RemoveFile}, {At: 15 * time.Second, Do: WriteFile}}
		u, w := newLife(), newLife()
		for l, phase := range map[*life]v1.PodPhase{&u: v1.PodRunning, &w: v1.PodPending} {
			l.status(1, v1.PodPending, "", v1.ContainerState{})
			l.status(20, phase, "", v1.ContainerState{})
		}
		last := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: 137}}
		u.Statuses[1].Pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "other", LastTerminationState: last}}
		if got := Compare(c, u.Trace, w.Trace); !hasClass(got, class) {
			t.Errorf("a last state %s: %q, want %q", reason, classes(got), class)
		}
	}
}

// If a container exits shortly before the deletion of its pod, the timing decides whether a back-off begins, so an event BackOff of one
// agent is excused. If the container exits earlier, it is a difference.
func TestABackOffThatBeginsInTheEnd(t *testing.T) {
	for runs, excused := range map[time.Duration]bool{36 * time.Second: true, 20 * time.Second: false} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: runs}}}
		u, w := newLife(), newLife()
		w.Events["Warning BackOff spec.containers{main-0}"] = Event{Count: 1, Message: "Back-off restarting failed container"}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Excused[excuseSoon] > 0) != excused || (len(v.Found) == 0) != excused {
			t.Errorf("an exit after %s: %q, excused %v", runs, classes(v.Found), v.Excused)
		}
	}
}

// The mirror of a removed static pod still shows a container as running when upstream's kubelet removes the mirror. If the kubelet had
// asked the container to end, this is a decided (intended) difference; otherwise it is undecided.
func TestAMirrorThatShowsNoEnd(t *testing.T) {
	for attempt, decided := range map[uint32]bool{0: true, 1: false} {
		c := oneContainer()
		c.Kind = Static
		c.Acts = []Act{{At: 40 * time.Second, Do: RemoveFile}}
		u, w := newLife(), newLife()
		running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		for _, l := range []life{u, w} {
			l.call(38, Call{Verb: "StopContainer", Container: "main-0", Attempt: attempt, Timeout: 8})
			l.status(2, v1.PodRunning, "", running)
		}
		w.status(41, v1.PodFailed, "", v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 137}})
		if got := Compare(c, u.Trace, w.Trace); hasClass(got, "the mirror of a removed static pod shows how it ended: only Wherry's") != decided {
			t.Errorf("a stop of instance %d: %q", attempt, classes(got))
		}
	}
}

// The manifest of a static pod comes back, and while its init container runs, only Wherry shows that the main container waits for it. That is a decided
// (intended) difference. Before the manifest comes back, or without a return, it is none.
func TestAContainerThatWaitsInTheNextLife(t *testing.T) {
	waits := []string{"waiting 1 PodInitializing"}
	for name, x := range map[string]struct {
		acts  []Act
		since float64
		want  bool
	}{
		"after the return":  {[]Act{{At: 15 * time.Second, Do: RemoveFile}, {At: 16 * time.Second, Do: WriteFile}}, 17, true},
		"before the return": {[]Act{{At: 15 * time.Second, Do: RemoveFile}, {At: 16 * time.Second, Do: WriteFile}}, 8, false},
		"without a return":  {[]Act{{At: 15 * time.Second, Do: RemoveFile}}, 17, false},
	} {
		c := oneContainer()
		c.Kind, c.Acts = Static, x.acts
		u, w := newLife(), newLife()
		d := newDiffer(c, u.Trace, w.Trace, never)
		spans := []span{{value: waits[0], since: w.at(x.since), lasts: 3 * time.Second}}
		if got := d.waitsInNextLife(nil, waits, spans); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
		if d.waitsInNextLife([]string{"running 1"}, waits, spans) {
			t.Errorf("%s: another value of upstream's kubelet is excused", name)
		}
	}
}

// Only Wherry shows a container as running whose pod is deleted while it is stopped for its postStart hook, which failed: a decided (intended)
// difference. It is none if the container ran before the deletion, or its hook does not fail.
func TestAContainerThatRunsAfterItsHookFailed(t *testing.T) {
	undecided := `states of main: only Wherry has ["running"]`
	for _, try := range []struct {
		fails bool
		since float64
		class string
	}{{true, 40.2, classHookFailedRuns}, {true, 30, undecided}, {false, 40.2, `states of main while the pod ends: only Wherry has ["running"]`}} {
		c := oneContainer()
		if try.fails {
			c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"postStart": {}}}}}
		}
		u, w := newLife(), newLife()
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("states of main", "states of main-0 in the API", []span{{"waiting 0 ContainerCreating", u.at(1), 42 * second}, {"terminated 0 Error 137", u.at(43), second}},
			[]span{{"waiting 0 ContainerCreating", w.at(1), time.Duration((try.since - 1) * float64(second))}, {"running 0", w.at(try.since), 3 * second}, {"terminated 0 Error 137", w.at(43), second}})
		want(t, d.found, try.class)
	}
}
