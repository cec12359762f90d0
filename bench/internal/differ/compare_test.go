package differ

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// life is the trace of a pod with one container, which runs from second 1 and is stopped in second 40.
type life struct {
	*Trace
	start time.Time
}

func newLife() life {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := life{&Trace{Created: start, Deleted: start.Add(40 * time.Second), Ended: start.Add(42 * time.Second), Gone: true, Events: map[string]Event{}}, start}
	l.call(0, Call{Verb: "RunPodSandbox"})
	l.call(1, Call{Verb: "CreateContainer", Container: "main-0"})
	l.call(1, Call{Verb: "StartContainer", Container: "main-0"})
	return l
}

func (l life) call(second float64, c Call) {
	c.At = l.at(second)
	l.Calls = append(l.Calls, c)
}

func (l life) at(second float64) time.Time {
	return l.start.Add(time.Duration(second * float64(time.Second)))
}

// ready adds to the trace a version of the pod, at the given second, whose Ready condition has this status and reason.
func (l life) ready(second float64, status v1.ConditionStatus, reason string) {
	p := &v1.Pod{Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: status, Reason: reason}}}}
	l.Statuses = append(l.Statuses, Seen{l.at(second), p})
}

func oneContainer() *Case {
	return &Case{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main-0"}}}}
}

func classes(found []Difference) (out []string) {
	for _, d := range found {
		out = append(out, d.Class)
	}
	return out
}

func want(t *testing.T, found []Difference, class ...string) {
	t.Helper()
	if got := classes(found); !slices.Equal(got, class) {
		t.Errorf("classes:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(class, "\n  "))
	}
}

func TestEqualTracesHaveNoDifference(t *testing.T) {
	want(t, Compare(oneContainer(), newLife().Trace, newLife().Trace))
}

func TestAnotherGracePeriodIsFound(t *testing.T) {
	u, w := newLife(), newLife()
	u.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
	w.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
	want(t, Compare(oneContainer(), u.Trace, w.Trace), `calls of main: only upstream has ["stop(8)"], only Wherry has ["stop(5)"]`)
}

func TestTimeoutsWithinASecondAreEqual(t *testing.T) {
	for _, try := range []struct {
		upstream, wherry int64
		equal            bool
	}{{8, 7, true}, {2, 3, true}, {2, 1, false}, {8, 6, false}, {0, 1, false}} {
		u, w := newLife(), newLife()
		u.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: try.upstream})
		w.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: try.wherry})
		if equal := len(Compare(oneContainer(), u.Trace, w.Trace)) == 0; equal != try.equal {
			t.Errorf("timeouts %d and %d: equal %t, want %t", try.upstream, try.wherry, equal, try.equal)
		}
	}
}

// Upstream's kubelet may run the preStop hook of a container that has exited, and stop the container, before it notices the exit. Such
// requests (Late) are not compared.
func TestAStopOfWhatHasEndedIsNotCompared(t *testing.T) {
	upstream, wherry := newLife(), newLife()
	upstream.call(20, Call{Verb: "ExecSync", Command: "preStop", Container: "main-0", Late: true})
	upstream.call(20, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2, Late: true})
	want(t, Compare(oneContainer(), upstream.Trace, wherry.Trace))
	upstream.call(20, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2})
	want(t, Compare(oneContainer(), upstream.Trace, wherry.Trace), `calls of main: only upstream has ["stop(2)"]`)
}

func TestAFurtherInstanceIsFound(t *testing.T) {
	u, w := newLife(), newLife()
	w.call(20, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
	want(t, Compare(oneContainer(), u.Trace, w.Trace), "calls of main: only Wherry has a further instance")
}

func TestAnInstanceAtTheEndIsNotCompared(t *testing.T) {
	u, w := newLife(), newLife()
	w.call(38, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
	want(t, Compare(oneContainer(), u.Trace, w.Trace))
}

func TestAnotherReasonOfAConditionIsFound(t *testing.T) {
	u, w := newLife(), newLife()
	u.ready(1, v1.ConditionFalse, "ContainersNotReady")
	u.ready(5, v1.ConditionTrue, "")
	w.ready(1, v1.ConditionFalse, "ReadinessGatesNotReady")
	w.ready(5, v1.ConditionTrue, "")
	want(t, Compare(oneContainer(), u.Trace, w.Trace),
		`condition Ready: only upstream has ["False ContainersNotReady"], only Wherry has ["False ReadinessGatesNotReady"]`)
}

func TestWhatPassesSoonIsNotCompared(t *testing.T) {
	u, w := newLife(), newLife()
	u.ready(1, v1.ConditionTrue, "")
	w.ready(1, v1.ConditionFalse, "ContainersNotReady")
	w.ready(2, v1.ConditionTrue, "")
	want(t, Compare(oneContainer(), u.Trace, w.Trace))
}

func TestWhatLastsOnOneSideMayPassSoonOnTheOther(t *testing.T) {
	u, w := newLife(), newLife()
	u.ready(1, v1.ConditionFalse, "ContainersNotReady")
	u.ready(4, v1.ConditionTrue, "")
	w.ready(3, v1.ConditionFalse, "ContainersNotReady")
	w.ready(4, v1.ConditionTrue, "")
	want(t, Compare(oneContainer(), u.Trace, w.Trace))
}

func TestTheLastStatusIsComparedEvenIfItCameLate(t *testing.T) {
	u, w := newLife(), newLife()
	u.ready(1, v1.ConditionTrue, "")
	w.ready(1, v1.ConditionTrue, "")
	w.ready(41.5, v1.ConditionFalse, "PodFailed")
	want(t, Compare(oneContainer(), u.Trace, w.Trace), `last status of the pod, condition Ready: upstream "True", Wherry "False PodFailed"`)
	forced := oneContainer()
	forced.Acts = []Act{{At: 40 * time.Second, Do: Delete}}
	want(t, Compare(forced, u.Trace, w.Trace))
}

func TestEventsAreComparedByReasonAndMessage(t *testing.T) {
	u, w := newLife(), newLife()
	u.Events["Normal Killing spec.containers{main-0}"] = Event{Count: 1, Message: "Stopping container main-0"}
	w.Events["Normal Killing spec.containers{main-0}"] = Event{Count: 1, Message: "Ending container main-0"}
	u.Events["Warning BackOff spec.containers{main-0}"] = Event{Count: 2, Message: "back-off 10s"}
	w.Events["Warning BackOff spec.containers{main-0}"] = Event{Count: 1, Message: "back-off 20s"}
	w.Events["Normal Started spec.containers{main-0}"] = Event{Count: 1, Message: "Container started"}
	want(t, Compare(oneContainer(), u.Trace, w.Trace),
		`message of event Normal Killing spec.containers{main}: upstream "Stopping container main", Wherry "Ending container main"`,
		"event Normal Started spec.containers{main}: upstream none, Wherry one")
}

func TestAStopOfWhatEndsItselfIsNotCompared(t *testing.T) {
	c := oneContainer()
	c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 38 * time.Second}}}
	u, w := newLife(), newLife()
	u.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
	want(t, Compare(c, u.Trace, w.Trace))
	c.Plays["main-0"][0].Runs = 20 * time.Second
	want(t, Compare(c, u.Trace, w.Trace), `calls of main: only upstream has ["stop(8)"]`)
}

// A value that lasts less than two seconds is excused only if something happened to the pod at that time.
func TestATransientBetweenEqualValuesHasACause(t *testing.T) {
	u, w := newLife(), newLife()
	u.ready(1, v1.ConditionTrue, "")
	w.ready(1, v1.ConditionTrue, "")
	w.ready(20, v1.ConditionFalse, "ContainersNotReady")
	w.ready(21, v1.ConditionTrue, "")
	want(t, Compare(oneContainer(), u.Trace, w.Trace), "condition Ready: only Wherry goes for a moment to False ContainersNotReady")
	for _, cause := range []func(*Case){
		func(c *Case) { c.Acts = []Act{{At: 19 * time.Second, Do: SetImage}} },
		func(c *Case) {
			c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"readiness": {From: 17 * time.Second}}}}}
		},
	} {
		c := oneContainer()
		cause(c)
		want(t, Compare(c, u.Trace, w.Trace))
	}
}

// If both agents report a value for a short time, until the deletion of the pod ends it, this is no difference. If only Wherry reports
// it, it is.
func TestAValueThatTheDeletionEndsIsNoTransient(t *testing.T) {
	u, w := newLife(), newLife()
	for _, l := range []life{u, w} {
		l.ready(1, v1.ConditionFalse, "ContainersNotReady")
	}
	w.ready(38.8, v1.ConditionTrue, "")
	w.ready(40.1, v1.ConditionFalse, "ContainersNotReady")
	w.ready(40.2, v1.ConditionFalse, "PodFailed")
	u.ready(40.1, v1.ConditionFalse, "PodFailed")
	want(t, Compare(oneContainer(), u.Trace, w.Trace), "condition Ready: only Wherry goes for a moment to True")
	u.Statuses = u.Statuses[:len(u.Statuses)-1]
	u.ready(38.8, v1.ConditionTrue, "")
	u.ready(40.1, v1.ConditionFalse, "PodFailed")
	want(t, Compare(oneContainer(), u.Trace, w.Trace))
}

func TestALateStartIsFound(t *testing.T) {
	u, w := newLife(), newLife()
	u.call(10, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
	w.call(16, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
	want(t, Compare(oneContainer(), u.Trace, w.Trace), "time of StartContainer of main#1 after an exit: Wherry is later")
}

func TestConfigurationsAreComparedFieldByField(t *testing.T) {
	u, w := newLife(), newLife()
	config := func(side, access string, shares int64) Config {
		return ConfigOf(&runtimeapi.ContainerConfig{
			Envs:   []*runtimeapi.KeyValue{{Key: "A", Value: []byte("127." + map[string]string{"upstream": "61", "wherry": "62"}[side] + ".0.7")}},
			Labels: map[string]string{"io.kubernetes.pod.uid": "c5b4a1f6-3f27-4d2e-9a52-0123456789ab"},
			Mounts: []*runtimeapi.Mount{{ContainerPath: "/etc/hosts", HostPath: "/tmp/wd-1/" + side + "/root/pods/x/etc-hosts", Readonly: access == "ro"}},
			Linux:  &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: shares}},
		})
	}
	u.Configs = map[string]Config{"main-0": config("upstream", "ro", 2)}
	w.Configs = map[string]Config{"main-0": config("wherry", "rw", 4)}
	want(t, Compare(oneContainer(), u.Trace, w.Trace),
		`config of a container: linux.resources.cpuShares: upstream "2", Wherry "4"`,
		`config of a container: mounts[].readonly: upstream "true", Wherry ""`)
}

// The UID of a static pod, which differs on each node, is part of some paths. A path that differs only in the UID is not a difference.
func TestTheUIDOfAStaticPodIsNoDifference(t *testing.T) {
	u, w := newLife(), newLife()
	for l, uid := range map[*life]string{&u: "e479371b840aa0da45732e05792930aa", &w: "931dfd652105e4fb3f02fc3b1de74164"} {
		l.Configs = map[string]Config{"sandbox": {"logDirectory": "/logs/bench_pod_" + uid, "linux.cgroupParent": "/kubepods/burstable/pod" + uid}}
	}
	c := oneContainer()
	c.Kind = Static
	want(t, Compare(c, u.Trace, w.Trace))
}

func TestConsequencesAreNotShown(t *testing.T) {
	found := []Difference{{Class: "a", Level: InEvents}, {Class: "b", Level: InCalls}, {Class: "c", Level: InConfig}, {Class: "d", Level: InCalls}}
	want(t, Shown(found), "b", "c", "d")
}

func TestASlowMachineIsNoDifference(t *testing.T) {
	for second, slow := range map[float64]bool{2: false, 6: false, 12: true, 0: true} {
		l := newLife()
		if second > 0 { // 0: no status shows the container
			p := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main-0", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(l.at(1))}}}}}}
			l.Statuses = append(l.Statuses, Seen{l.at(second), p})
		}
		if got := l.slow(oneContainer()); (got != "") != slow {
			t.Errorf("told in second %v: slow %q, want %t", second, got, slow)
		}
	}
	short := oneContainer()
	short.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 3 * time.Second}}}
	if newLife().slow(short) != "" {
		t.Error("a container that ends soon may never be told of")
	}
}

// The comparison finds each fault that the test plants in the trace of a simple pod. Without the fault the two traces are equal.
func TestPlantedFaultsAreFound(t *testing.T) {
	plain := func() life {
		l := newLife()
		l.ready(1, v1.ConditionFalse, "ContainersNotReady")
		l.ready(5, v1.ConditionTrue, "")
		l.call(40, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		return l
	}
	want(t, Compare(oneContainer(), plain().Trace, plain().Trace))
	for class, plant := range map[string]func(life){
		`calls of main: only upstream has ["stop(8)"], only Wherry has ["stop(12)"]`: func(l life) { l.Calls[len(l.Calls)-1].Timeout = 12 },
		"calls of main: only Wherry has a further instance": func(l life) {
			l.call(20, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
			l.call(20, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		},
		`condition Ready: only upstream has ["False ContainersNotReady"], only Wherry has ["False NotReady"]`: func(l life) {
			l.Statuses[0].Pod.Status.Conditions[0].Reason = "NotReady"
		},
	} {
		w := plain()
		plant(w)
		want(t, Shown(Compare(oneContainer(), plain().Trace, w.Trace)), class)
	}
}

// If Wherry starts a container late because of a decided (intended) difference, later differences are excused. A difference before that
// time is still found, and so is a wrong timeout of a stop.
func TestADecidedDelayHidesWhatFollowsAlone(t *testing.T) {
	lives := func(second float64) life {
		l := newLife()
		l.call(8, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		l.call(9, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		l.call(17, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 8})
		l.call(second, Call{Verb: "StartContainer", Container: "main-0", Attempt: 2})
		return l
	}
	u, w := lives(18), lives(28)
	u.call(30, Call{Verb: "StartContainer", Container: "main-0", Attempt: 3})
	late := "time of StartContainer of main#2 after a stop: Wherry is later"
	want(t, Compare(oneContainer(), u.Trace, w.Trace), late)
	for second, class := range map[float64][]string{10: {late, `condition Ready: only Wherry has ["False NotReady"]`}, 19: {late}} {
		w := lives(28)
		u.Statuses = nil
		u.ready(1, v1.ConditionTrue, "")
		w.ready(1, v1.ConditionTrue, "")
		w.ready(second, v1.ConditionFalse, "NotReady")
		want(t, Compare(oneContainer(), u.Trace, w.Trace), class...)
	}
	u.Statuses = nil
	w.Calls[5].Timeout = 3
	want(t, Compare(oneContainer(), u.Trace, w.Trace), `calls of main: only upstream has ["stop(8)"], only Wherry has ["stop(3)"]`, late)
}

// If Wherry stops a container with the grace period of its failed probe, the difference has a class of its own. A stop with any other
// wrong grace period does not get this class.
func TestTheGracePeriodOfAProbeHasItsClass(t *testing.T) {
	c := oneContainer()
	c.Spec.TerminationGracePeriodSeconds = new(int64(8))
	u, w := newLife(), newLife()
	u.call(20, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
	w.call(20, Call{Verb: "StopContainer", Container: "main-0", Timeout: 3})
	want(t, Compare(c, u.Trace, w.Trace), `calls of main: only upstream has ["stop(8)"], only Wherry has ["stop(3)"]`)
	c.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(3))}
	want(t, Compare(c, u.Trace, w.Trace), `calls of main, which fails a probe with a grace period of its own: only upstream has ["stop(8)"], only Wherry has ["stop(3)"]`)
}

// If Wherry, after a preStop hook, stops a container with the rest of the grace period of its failed probe, the difference has a class of
// its own.
func TestTheRestOfAProbesGracePeriodHasItsClass(t *testing.T) {
	compare := func(upstream, wherry int64) []Difference {
		c := oneContainer()
		c.Spec.TerminationGracePeriodSeconds = new(int64(8))
		c.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(5))}
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"preStop": 2 * time.Second}}}}
		u, w := newLife(), newLife()
		for side, timeout := range map[life]int64{u: upstream, w: wherry} {
			side.call(20, Call{Verb: "ExecSync", Command: "preStop", Container: "main-0"})
			side.call(22, Call{Verb: "StopContainer", Container: "main-0", Timeout: timeout})
		}
		return Compare(c, u.Trace, w.Trace)
	}
	want(t, compare(6, 3), "calls of main, which fails a probe with a grace period of its own: a hook leaves the rest of it only to Wherry")
	want(t, compare(6, 8), `calls of main: only upstream has ["stop(6)"], only Wherry has ["stop(8)"]`)
	want(t, compare(3, 6), `calls of main: only upstream has ["stop(3)"], only Wherry has ["stop(6)"]`)
}

func TestALateStopBesideAPostStartHookIsReported(t *testing.T) {
	c := oneContainer()
	u, w := newLife(), newLife()
	u.call(30, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
	w.call(20, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
	want(t, Compare(c, u.Trace, w.Trace), `time of StopContainer of main#0: upstream is later`)
	c.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	want(t, Compare(c, u.Trace, w.Trace), `time of StopContainer of main#0, in a pod with a postStart hook: upstream is later`)
}

// If the agents restart soon after a container has started, a late report of the start does not mean that the machine is too slow for the
// comparison.
func TestSlowBesideARestart(t *testing.T) {
	for _, c := range []struct {
		down Down
		slow bool
	}{
		{Down{}, true},
		{Down{newLife().at(5), newLife().at(9)}, false},
		{Down{newLife().at(20), newLife().at(24)}, true},
	} {
		l := newLife()
		l.Downs = []Down{c.down}
		if got := l.slow(oneContainer()); (got != "") != c.slow {
			t.Errorf("down from %s: %q", c.down.From, got)
		}
	}
}

// If the mirror of a removed static pod has another phase with Wherry than with upstream's kubelet, the difference has a class of its
// own. Other fields of the status have their usual classes.
func TestFieldsOfARemovedMirror(t *testing.T) {
	c := oneContainer()
	c.Kind = Static
	u, w := newLife(), newLife()
	u.status(2, v1.PodPending, "", v1.ContainerState{})
	w.status(2, v1.PodRunning, "", v1.ContainerState{})
	w.Statuses[0].Pod.Status.QOSClass = v1.PodQOSBurstable
	got := Compare(c, u.Trace, w.Trace)
	for _, class := range []string{
		`last status of the mirror of a removed static pod, phase: upstream "Pending", Wherry "Running"`,
		`last status of the pod, qosClass: upstream "", Wherry "Burstable"`,
	} {
		if !hasClass(got, class) {
			t.Errorf("%q, want %s", classes(got), class)
		}
	}
}

// The error message of a failed connection contains the client's port, which Linux chooses anew each time. The comparison replaces ports
// of that range with a constant.
func TestMessageWithoutPorts(t *testing.T) {
	d := &differ{c: oneContainer()}
	for port, replaced := range map[string]bool{"8100": false, "31999": false, "32699": false, "32768": true, "32999": true, "33000": true, "60999": true, "9": false} {
		if got := d.message("read tcp 127.60.0.1:" + port + ": reset"); (got == "read tcp ADDRESS:PORT: reset") != replaced {
			t.Errorf("%s: %s", port, got)
		}
	}
}

// After the watch of the API has ended, Run fails with ErrWatchEnded, because the runner cannot see changes of pods any more.
func TestNoRunAfterTheWatch(t *testing.T) {
	changes := make(chan watch.Event)
	close(changes)
	see := func(watch.Event) {}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	run := &Runner{}
	if run.read(stopped, changes, see); run.lostWatch() != nil {
		t.Errorf("a watch that was stopped: %v", run.lostWatch())
	}
	run.read(t.Context(), changes, see)
	if _, _, err := run.Run(t.Context(), oneContainer()); !errors.Is(err, ErrWatchEnded) {
		t.Errorf("run: %v", err)
	}
}
