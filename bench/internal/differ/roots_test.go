package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func twoContainers() *Case {
	return &Case{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main-0"}, {Name: "main-1"}}},
		Plays: map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": 12 * time.Second}}}}}
}

// If Wherry restarts a container while upstream's kubelet waits for the postStart hook of another container, only the class of this
// decided (intended) difference is reported.
func TestWhatWherryDoesDuringAHook(t *testing.T) {
	u, w := newLife(), newLife()
	want(t, Compare(twoContainers(), u.hooked(), w.hooked(5)), classWhileHook)
}

// Without a postStart hook of another container, a restart that only Wherry makes is an undecided difference.
func TestWhatWherryDoesBesideNoHook(t *testing.T) {
	c := twoContainers()
	c.Plays = nil
	u, w := newLife(), newLife()
	want(t, Compare(c, u.hooked(), w.hooked(5)), "calls of main: only Wherry has a further instance")
}

// If both agents restart a container during the postStart hook of another container, that is no decided difference, so it does not hide a
// stop that only Wherry makes.
func TestWhatBothDoDuringAHook(t *testing.T) {
	u, w := newLife(), newLife()
	a, b := u.hooked(5), w.hooked(5)
	b.Calls = append(b.Calls, Call{At: w.at(30), Verb: "StopContainer", Container: "main-1", Attempt: 1, Timeout: 3})
	want(t, Compare(twoContainers(), a, b), `calls of main: only Wherry has ["stop(3)"]`)
}

// If only upstream's kubelet restarts a container after the pod's deletion, that is a decided difference.
func TestARestartInTheEnd(t *testing.T) {
	u, w := newLife(), newLife()
	for _, l := range []*life{&u, &w} {
		l.call(39, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
	}
	u.call(41, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
	u.call(41, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
	u.call(41, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 5})
	w.call(39.5, Call{Verb: "StopContainer", Container: "main-0", Timeout: 3})
	want(t, Compare(oneContainer(), u.Trace, w.Trace), classStartsInTheEnd)
}

// A pod with restartPolicy Never loses its sandbox. If one container has another restartPolicy of its own, only Wherry makes a new
// sandbox: a decided (intended) difference. If none has, a new sandbox is an undecided difference.
func TestALostSandboxAndAPolicyOfItsOwn(t *testing.T) {
	for _, own := range []bool{true, false} {
		c := oneContainer()
		c.Spec.RestartPolicy, c.Acts = v1.RestartPolicyNever, []Act{{At: 4 * time.Second, Do: LoseSandbox}}
		class := `sandboxes: only upstream has ["1"], only Wherry has ["2"]`
		if own {
			c.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			class = classOwnPolicy
		}
		u, w := newLife(), newLife()
		w.call(5, Call{Verb: "RunPodSandbox"})
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// hooked adds to the trace a postStart hook of main-0, and a restart of main-1 at each time in again, in seconds.
func (l life) hooked(again ...float64) *Trace {
	l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
	for _, at := range again {
		l.call(at, Call{Verb: "CreateContainer", Container: "main-1", Attempt: 1})
		l.call(at, Call{Verb: "StartContainer", Container: "main-1", Attempt: 1})
	}
	return l.Trace
}

// A second deletion shortens the grace period of a pod that is already ending, and only Wherry stops the container again: a decided
// difference. Without a second deletion the difference is undecided.
func TestADeletionThatCutsShort(t *testing.T) {
	c := oneContainer()
	c.Acts = []Act{{At: 35 * time.Second, Do: Delete, Grace: 20}, {At: 40 * time.Second, Do: Delete, Grace: 1}}
	u, w := newLife(), newLife()
	for _, l := range []life{u, w} {
		l.call(35, Call{Verb: "StopContainer", Container: "main-0", Timeout: 20})
	}
	w.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2})
	want(t, Compare(c, u.Trace, w.Trace), classShorter)
	c.Acts = c.Acts[:1]
	want(t, Compare(c, u.Trace, w.Trace), `calls of main: only Wherry has ["stop(2)"]`)
}

// Only Wherry resizes a container while the container's postStart hook runs: a decided (intended) difference. A resize by Wherry alone
// after the hook is an undecided difference.
func TestAResizeDuringTheHook(t *testing.T) {
	for at, class := range map[float64]string{5: classResizedInHook, 15: `calls of main: only Wherry has ["resize"]`} {
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
		}
		w.call(at, Call{Verb: "UpdateContainerResources", Container: "main-0"})
		u.call(13, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
		w.call(17, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
		want(t, Compare(twoContainers(), u.Trace, w.Trace), class)
	}
}

// The image of a container is changed while the postStart hook of another container runs. Upstream's kubelet starts the container with the
// old image and then replaces it: a decided difference. Without the hook it is undecided.
func TestAnImageThatIsChangedDuringAHook(t *testing.T) {
	for at, decided := range map[time.Duration]bool{5 * time.Second: true, 20 * time.Second: false} {
		c := twoContainers()
		c.Acts = []Act{{At: at, Do: SetImage, Container: "main-1"}}
		u, w := newLife(), newLife()
		for _, l := range []life{u, w} {
			l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
			l.call(21, Call{Verb: "CreateContainer", Container: "main-1"})
			l.call(21, Call{Verb: "StartContainer", Container: "main-1"})
		}
		u.call(21.5, Call{Verb: "StopContainer", Container: "main-1", Timeout: 5})
		u.call(22, Call{Verb: "CreateContainer", Container: "main-1", Attempt: 1})
		u.call(22, Call{Verb: "StartContainer", Container: "main-1", Attempt: 1})
		if got := Compare(c, u.Trace, w.Trace); hasClass(got, classOldImageFirst) != decided || len(got) == 0 {
			t.Errorf("changed after %s: %q", at, classes(got))
		}
	}
}

// A pod is deleted while one of its containers is stopped to be restarted. With upstream's kubelet the grace period of the other containers
// begins only after that stop: a decided difference. If the stop ended before the deletion, the difference is undecided.
func TestADeletionDuringAStop(t *testing.T) {
	for stop, class := range map[float64]string{37: classDeletedInStop, 20: `calls of main: only upstream has ["stop(8)"], only Wherry has ["stop(5)"]`} {
		c := twoContainers()
		c.Spec.TerminationGracePeriodSeconds = new(int64(8))
		u, w := newLife(), newLife()
		for l, timeout := range map[*life]int64{&u: 8, &w: 5} {
			l.call(1, Call{Verb: "CreateContainer", Container: "main-1"})
			l.call(1, Call{Verb: "StartContainer", Container: "main-1"})
			l.call(stop, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
			l.call(43, Call{Verb: "StopContainer", Container: "main-1", Timeout: timeout})
		}
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// A pod loses its sandbox. Upstream's kubelet leaves the pod Pending, and with Wherry the pod fails. With restartPolicy Never this is a
// decided difference, with Always an undecided one.
func TestALostSandboxOfAPodThatNeverRestarts(t *testing.T) {
	for policy, decided := range map[v1.RestartPolicy]bool{v1.RestartPolicyNever: true, v1.RestartPolicyAlways: false} {
		c := oneContainer()
		c.Spec.RestartPolicy = policy
		c.Acts = []Act{{At: 10 * time.Second, Do: LoseSandbox}}
		u, w := newLife(), newLife()
		for l, phase := range map[*life]v1.PodPhase{&u: v1.PodPending, &w: v1.PodFailed} {
			l.status(1, v1.PodPending, "", v1.ContainerState{})
			l.status(11, phase, "", v1.ContainerState{})
		}
		if got := Compare(c, u.Trace, w.Trace); hasClass(got, classNeverAgain) != decided || len(got) == 0 {
			t.Errorf("restart policy %s: %q", policy, classes(got))
		}
	}
}

// A changed manifest begins the next life of a static pod with activeDeadlineSeconds, and the container is stopped at once. If only
// upstream's kubelet stops it, this is the decided (intended) difference; if both agents do, it is not.
func TestADeadlineOfTheNextLife(t *testing.T) {
	for _, both := range []bool{false, true} {
		c := oneContainer()
		c.Kind, c.Spec.ActiveDeadlineSeconds = Static, new(int64(20))
		u, w := newLife(), newLife()
		lives := []*life{&u}
		if both {
			lives = append(lives, &w)
		} else {
			w.call(25, Call{Verb: "StartContainer", Container: "main-0", Attempt: lifeAttempts})
		}
		for _, l := range lives {
			l.call(25, Call{Verb: "StartContainer", Container: "main-0", Attempt: lifeAttempts})
			l.call(25.5, Call{Verb: "StopContainer", Container: "main-0", Attempt: lifeAttempts, Timeout: 2})
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		if got := d.deadlineAnew(); got == both {
			t.Errorf("Wherry hurries too: %t; only upstream ends it: %t", both, got)
		}
	}
}

// A main container is stopped for a failed probe. Upstream's kubelet stops the sidecar together with it, and Wherry later: a decided (intended)
// difference, unless Wherry does the same, or the main container has no probe.
func TestASidecarThatIsStoppedWithAFailedContainer(t *testing.T) {
	for _, try := range []struct {
		probe bool
		later float64 // when Wherry stops the sidecar
		root  string
	}{{true, 7, classEndsWithOne}, {true, 5.2, ""}, {false, 7, ""}} {
		c := withSidecar()
		if try.probe {
			c.Spec.Containers[0].LivenessProbe = &v1.Probe{}
		}
		u, w := newLife(), newLife()
		for l, at := range map[*life]float64{&u: 5, &w: try.later} {
			l.runs(1, "side-0", 0)
			l.call(5, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
			l.call(at, Call{Verb: "ExecSync", Container: "side-0", Command: "preStop"})
			l.call(12, Call{Verb: "StopContainer", Container: "side-0", Timeout: 2})
			l.call(12, Call{Verb: "StopPodSandbox"})
		}
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != try.root {
			t.Errorf("%+v: %q", try, got)
		}
	}
}
