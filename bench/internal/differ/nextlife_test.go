package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The manifest of a static pod is changed in second 14. Wherry makes the pod's sandbox again at once, upstream's kubelet ten seconds later. A sandbox that
// is lost between the two has to be made again only by Wherry. At any other time one more sandbox is a difference.
func TestASandboxLostInTheNextLife(t *testing.T) {
	for lost, class := range map[int]string{
		22: classLostInNextLife,
		9:  `sandboxes: only upstream has ["2"], only Wherry has ["3"]`,
		30: `sandboxes: only upstream has ["2"], only Wherry has ["3"]`,
	} {
		c := oneContainer()
		c.Kind, c.Acts = Static, []Act{{At: 14 * second, Do: WriteFile, Container: "main-0"}, {At: time.Duration(lost) * second, Do: LoseSandbox}}
		u, w := newLife(), newLife()
		u.call(26, Call{Verb: "RunPodSandbox"})
		w.call(14.2, Call{Verb: "RunPodSandbox"})
		w.call(float64(lost)+0.1, Call{Verb: "RunPodSandbox"})
		want(t, Compare(c, u.Trace, w.Trace), class)
	}
}

// A container has a startup probe that fails for seven seconds, and its failureThreshold is three. Only Wherry stops it. That hangs on the moment if the
// agents are restarted while the probe fails, because each counts the failures anew; otherwise it does not.
func TestFailuresAreCountedAnewAfterARestart(t *testing.T) {
	for down, crossed := range map[float64]bool{10: true, 30: false} {
		c := probedContainer(map[string]Window{"startup": {To: 7 * second}})
		c.Kind = Restart
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.runs(6, "main-0", 1)
			l.Downs = []Down{{l.at(down), l.at(down + 0.2)}}
		}
		w.call(13.2, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 5})
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil && v.Crossing.Beats == "failure of the startup probe of main") != crossed {
			t.Errorf("restart in second %v: crossing %+v, want one: %t", down, v.Crossing, crossed)
		}
	}
}

// A main container ends with its pod's deletion in second 40, and a sidecar becomes ready while it ends. Upstream's kubelet tells of the end only when all
// have ended, so for a while it finds only the readiness gate missing. It is an undecided difference if Wherry shows the container as running too.
func TestAReadinessGateInTheEnd(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	for ended, class := range map[v1.ContainerState]string{
		{Terminated: &v1.ContainerStateTerminated{}}: "condition Ready while the pod ends: only Wherry tells of each end at once",
		running: `condition Ready while the pod ends: only upstream has ["False ReadinessGatesNotReady"]`,
	} {
		u, w := newLife(), newLife()
		for l, state := range map[*life]v1.ContainerState{&u: running, &w: ended} {
			l.Ended = l.at(47.5)
			l.ready(1, v1.ConditionFalse, "ContainersNotReady")
			l.last().Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main-0", State: running}}
			l.ready(40.5, v1.ConditionFalse, "ContainersNotReady")
			l.last().Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main-0", State: state}}
		}
		u.ready(42, v1.ConditionFalse, "ReadinessGatesNotReady")
		u.last().Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main-0", State: running}}
		d := newDiffer(oneContainer(), u.Trace, w.Trace, never)
		d.series("condition Ready", "condition Ready in the API", u.condition(v1.PodReady), w.condition(v1.PodReady))
		want(t, d.found, class)
	}
}

// A restart of the agents in second 8 interrupts the preStop hook of a container that failed its startup probe in second 4. Only Wherry runs the hook again
// and stops the container: a decided difference, unless upstream's kubelet had stopped the container before the restart.
func TestAFailedProbeIsForgottenInTheHook(t *testing.T) {
	for stopped, root := range map[bool]string{false: classStopForgotten, true: ""} {
		c := oneContainer()
		c.Kind, c.Plays = Restart, map[string][]Play{"main-0": {{Term: TermIgnored, Fails: map[string]Window{"startup": {To: 7 * second}}, Slow: map[string]time.Duration{"preStop": 12 * second}}}}
		c.Spec.Containers[0].StartupProbe = &v1.Probe{InitialDelaySeconds: 3, FailureThreshold: 1}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(4.1, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop"})
			if stopped {
				l.call(6, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
			}
			l.Downs = []Down{{l.at(8), l.at(8.3)}}
		}
		w.call(9, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop"})
		w.call(14, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2})
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != root {
			t.Errorf("stopped before the restart %t: %q", stopped, got)
		}
	}
}
