package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Only upstream's kubelet resizes a container right after its first start. If the resize was requested before that start, the difference
// has a class of its own. A resize long after the start has the usual class.
func TestAResizeBeforeTheFirstStart(t *testing.T) {
	for at, class := range map[time.Duration]string{
		500 * time.Millisecond: `calls of main, resized before its first start: only upstream has ["resize"]`,
		8 * time.Second:        `calls of main: only upstream has ["resize"]`,
	} {
		c := oneContainer()
		c.Acts = []Act{{At: at, Do: Resize, Container: "main-0"}}
		u, w := newLife(), newLife()
		u.call(at.Seconds()+1, Call{Verb: "UpdateContainerResources", Container: "main-0"})
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// While a pod ends, upstream's kubelet reports ContainersNotReady, and Wherry PodCompleted. This is decided if the container's readiness
// probe uses the network, because nobody answers it after the container has ended. With a command as the probe it is undecided.
func TestAReadinessProbeThatFindsNobody(t *testing.T) {
	for probe, class := range map[*v1.Probe]string{
		{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}}: classHearsNobody,
		{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}}:           `condition Ready while the pod ends: only upstream has ["False ContainersNotReady"], only Wherry has ["False PodCompleted"]`,
	} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe = probe
		u, w := newLife(), newLife()
		u.ready(1, v1.ConditionTrue, "")
		w.ready(1, v1.ConditionTrue, "")
		u.ready(41, v1.ConditionFalse, "ContainersNotReady")
		w.ready(41, v1.ConditionFalse, "PodCompleted")
		u.ready(45, v1.ConditionFalse, "PodFailed")
		w.ready(45, v1.ConditionFalse, "PodFailed")
		u.Ended, w.Ended = u.at(50), w.at(50)
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// With upstream's kubelet a running pod goes back to Pending. After the loss of its sandbox this is a decided difference; otherwise it is
// undecided.
func TestAPodThatIsPendingAgain(t *testing.T) {
	for lost, class := range map[bool]string{true: classPendingAgain, false: `phases: only upstream has ["Pending" "Running"]`} {
		c := oneContainer()
		if lost {
			c.Acts = []Act{{At: 8 * time.Second, Do: LoseSandbox}}
		}
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.status(1, v1.PodRunning, "", v1.ContainerState{})
		}
		u.status(9, v1.PodPending, "", v1.ContainerState{})
		u.status(19, v1.PodRunning, "", v1.ContainerState{})
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("phases", "the phases in the API", u.phases(), w.phases())
		want(t, d.found, class)
	}
}

// The image of a container is changed while the container's own postStart hook runs. Wherry stops the container at once, upstream's
// kubelet only after the hook: a decided (intended) difference. If the image is changed after the hook, root finds no decided difference.
func TestAnImageChangedDuringAHook(t *testing.T) {
	for at, root := range map[time.Duration]string{8 * time.Second: classChangedInHook, 20 * time.Second: ""} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": 12 * time.Second}}}}
		c.Acts = []Act{{At: at, Do: SetImage, Container: "main-0"}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(1, Call{Verb: "ExecSync", Command: "postStart", Container: "main-0"})
		}
		w.call(at.Seconds(), Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
		u.call(21, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("an image changed after %s: %q, want %q", at, got, root)
		}
	}
}

// Only upstream's kubelet sends the event ResizeCompleted. If the container was stopped before the resize and does not start again, the
// difference has a class of its own.
func TestAResizeOfAContainerThatEnds(t *testing.T) {
	for stopped, class := range map[float64]string{
		5:  "event Normal ResizeCompleted, of a container that ends: upstream one, Wherry none",
		30: "event Normal ResizeCompleted: upstream one, Wherry none",
	} {
		c := oneContainer()
		c.Spec.Containers = append(c.Spec.Containers, v1.Container{Name: "main-1"})
		c.Acts = []Act{{At: 8 * time.Second, Do: Resize, Container: "main-0"}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(1, Call{Verb: "StartContainer", Container: "main-1"})
			l.call(stopped, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		}
		u.Events["Normal ResizeCompleted"] = Event{Count: 1, First: u.at(9)}
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// Upstream's kubelet probes a sidecar that ignores SIGTERM until the runtime kills it, so its probe may fail after the pod's end has begun.
// The probe of a sidecar that exits at SIGTERM cannot fail so late.
func TestAProbeThatFailsWhileASidecarIgnoresTERM(t *testing.T) {
	for term, late := range map[Term]bool{TermIgnored: true, TermEnds: false} {
		c := oneContainer()
		c.Spec.TerminationGracePeriodSeconds = ptr.To[int64](8)
		c.Spec.InitContainers = []v1.Container{{Name: "side-0", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways), LivenessProbe: &v1.Probe{}}}
		c.Plays = map[string][]Play{"side-0": {{Term: term, Fails: map[string]Window{"liveness": {From: 9 * time.Second}}}}}
		u := newLife()
		u.Deleted = u.at(6)
		u.call(0.5, Call{Verb: "StartContainer", Container: "side-0"})
		u.call(6, Call{Verb: "StopContainer", Container: "side-0", Timeout: 8})
		if got := newDiffer(c, u.Trace, u.Trace, never).failsAfter(u.Trace, "side-0", "liveness"); got != late {
			t.Errorf("a container that reacts to TERM by %d: fails after the pod's end %t, want %t", term, got, late)
		}
	}
}

// A probe is about to fail when the sandbox, and with it the container, is lost. If the loss comes before the probe fails, the agent need
// not have seen a failure. If it comes later, the agent must have seen one.
func TestAProbeOfALostContainer(t *testing.T) {
	for lost, must := range map[time.Duration]bool{4 * time.Second: false, 20 * time.Second: true} {
		c := oneContainer()
		c.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"readiness": {From: 5 * time.Second}}}}}
		c.Acts = []Act{{At: lost, Do: LoseSandbox}}
		w := newLife()
		if _, got := newDiffer(c, w.Trace, w.Trace, never).tells(w.Trace, "main-0", "readiness"); got != must {
			t.Errorf("a sandbox lost after %s: a failure must be seen %t, want %t", lost, got, must)
		}
	}
}

// Only Wherry restarts a container shortly before the pod's deletion. The extra instance is excused, and so are the statuses that show
// how it ended.
func TestTheEndOfAnExtraInstance(t *testing.T) {
	c := oneContainer()
	c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 30 * time.Second}}}
	u, w := newLife(), newLife()
	w.call(36, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
	w.call(36, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
	for _, l := range []life{u, w} {
		l.status(31, v1.PodRunning, "", v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}})
	}
	w.status(40.5, v1.PodRunning, "", v1.ContainerState{Running: &v1.ContainerStateRunning{}})
	w.Ended, u.Ended = w.at(46), u.at(46)
	want(t, Compare(c, u.Trace, w.Trace))
}
