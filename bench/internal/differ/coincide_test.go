package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// A container ignores SIGTERM and exits by itself at about the end of its grace period, when it is killed. A difference in its exit code
// then depends on the timing, so the case has a Crossing. It has none if both agents report the same code, or if the exit would come well
// after the kill.
func TestAnExitBesideTheEndOfAGracePeriod(t *testing.T) {
	for _, try := range []struct {
		what    string
		runs    time.Duration
		w       int32
		crossed bool
	}{
		{"the exit codes differ", 11 * time.Second, 42, true},
		{"the exit codes are equal", 11 * time.Second, 137, false},
		{"the exit would come long after the kill", 16 * time.Second, 42, false},
	} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Code: 42, Runs: try.runs, Term: TermIgnored}}}
		u, w := newLife(), newLife() // the container starts in second 1
		for l, code := range map[*life]int32{&u: 137, &w: try.w} {
			l.call(10, Call{Verb: "StopContainer", Container: "main-0", Timeout: 2})
			l.status(12.1, v1.PodRunning, "", v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}})
		}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != try.crossed {
			t.Errorf("%s: crossing %+v, want one: %t", try.what, v.Crossing, try.crossed)
		}
	}
}

// Shortly before the pod's end only one agent restarts the main container. The sidecar then has to wait for that instance, so the time
// and the timeout of the sidecar's stop are not compared. They are compared if both agents restart the main container.
func TestASidecarThatOutlivesAnExtraInstance(t *testing.T) {
	for both, classes := range map[bool][]string{false: nil, true: {"calls of sidecar: only upstream has [\"stop(8)\"], only Wherry has [\"stop(2)\"]"}} {
		c := oneContainer()
		c.Spec.InitContainers = []v1.Container{{Name: "side-0", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}}
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 30 * time.Second}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(1, Call{Verb: "CreateContainer", Container: "side-0"})
			l.call(1, Call{Verb: "StartContainer", Container: "side-0"})
			if both || l == &w {
				l.call(36, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
				l.call(36, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
				l.call(40, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 8})
			}
		}
		u.call(40, Call{Verb: "StopContainer", Container: "side-0", Timeout: 8})
		w.call(41.5, Call{Verb: "StopContainer", Container: "side-0", Timeout: 2})
		want(t, Compare(c, u.Trace, w.Trace), classes...)
	}
}

// Wherry delays the restart of a container after a stop; upstream's kubelet does not. This difference has the same class whether or not
// the container was resized before the stop.
func TestAResizeBeforeAStopIsNoOtherDifference(t *testing.T) {
	c := oneContainer()
	c.Acts = []Act{{At: 8 * time.Second, Do: Resize, Container: "main-0"}}
	u, w := newLife(), newLife()
	for _, l := range []*life{&u, &w} {
		l.call(12, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		l.call(12, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 1})
		l.call(12, Call{Verb: "StartContainer", Container: "main-0", Attempt: 1})
		l.call(22, Call{Verb: "StopContainer", Container: "main-0", Attempt: 1, Timeout: 8})
	}
	for l, again := range map[*life]float64{&u: 22.1, &w: 31} {
		l.call(again, Call{Verb: "CreateContainer", Container: "main-0", Attempt: 2})
		l.call(again, Call{Verb: "StartContainer", Container: "main-0", Attempt: 2})
	}
	want(t, Compare(c, u.Trace, w.Trace), "time of StartContainer of main#2 after a stop: Wherry is later")
}

// A container exits before its image is changed with Wherry, and would have exited after it with upstream's kubelet, which stopped it for the
// change: the case has a Crossing. It has none if the container would have exited long after the change with both.
func TestAnExitThatAChangePrevents(t *testing.T) {
	for runs, crossed := range map[time.Duration]bool{6 * second: true, 20 * second: false} {
		c := twoContainers()
		c.Spec.RestartPolicy = v1.RestartPolicyAlways
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: runs, Code: 1}}}
		c.Acts = []Act{{At: 8 * second, Do: SetImage, Container: "main-0"}}
		u, w := newLife(), newLife() // the container starts in second 1
		u.Calls[1].At, u.Calls[2].At = u.at(4), u.at(4)
		for _, l := range []*life{&u, &w} {
			l.runs(1, "main-1", 0)
			if l == &u || !crossed {
				l.call(8, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
				l.runs(8.1, "main-0", 1)
			}
		}
		if v := CompareAll(c, u.Trace, w.Trace); (v.Crossing != nil) != crossed {
			t.Errorf("runs for %v: crossing %+v, want one: %t", runs, v.Crossing, crossed)
		}
	}
}
