package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mirror adds to the trace a mirror with this UID at the given second.
func (l life) mirror(second float64, uid types.UID, phase v1.PodPhase, ends v1.ContainerState) {
	l.status(second, phase, "", ends)
	l.Statuses[len(l.Statuses)-1].Pod.UID = uid
}

// The mirror of a static pod is deleted in second 14, and only Wherry makes another one. That is a decided (intended) difference if the pod has
// ended or ends soon. It is none if the pod runs on, if both or neither made another mirror, or if the agents differed before.
func TestAMirrorOfAPodThatEnds(t *testing.T) {
	runs, over := v1.ContainerState{Running: &v1.ContainerStateRunning{}}, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
	for _, try := range []struct {
		ends                            float64
		both, neither, resizes, unready bool
		decided                         bool
	}{{ends: 13, decided: true}, {ends: 17, decided: true}, {ends: 25}, {ends: 17, both: true}, {ends: 17, neither: true}, {ends: 17, resizes: true}, {ends: 17, unready: true}} {
		c := oneContainer()
		c.Kind, c.Acts, c.Spec.RestartPolicy = Static, []Act{{At: 14 * second, Do: DeleteMirror}}, v1.RestartPolicyNever
		c.Plays = map[string][]Play{"main-0": {{Exits: true, Code: 1, Runs: time.Duration(try.ends-2) * second}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.mirror(1, "first", v1.PodRunning, runs)
			l.call(try.ends, Call{Verb: "StopPodSandbox"})
		}
		if try.ends < 14 { // upstream's kubelet, which is a little slower, no longer comes to it
			w.mirror(try.ends+0.2, "first", v1.PodFailed, over)
		}
		if try.both {
			u.mirror(16, "second", v1.PodRunning, runs)
		}
		if try.unready {
			w.ready(4, v1.ConditionFalse, "ContainersNotReady")
			w.Statuses[1].Pod.UID = "first"
		}
		if try.resizes {
			w.call(8, Call{Verb: "UpdateContainerResources", Container: "main-0"})
		}
		last := types.UID("second")
		if try.neither {
			last = "first"
		}
		w.mirror(max(try.ends+1, 16), last, v1.PodFailed, over)
		got := Compare(c, u.Trace, w.Trace)
		if hasClass(got, classMirrorAgain) != try.decided || try.decided && len(got) != 1 {
			t.Errorf("%+v: %q", try, classes(got))
		}
	}
	if !Decided(classMirrorAgain) {
		t.Error("the class is not decided")
	}
}

// A pod is deleted in second 8, and Wherry cuts the postStart hook short. It is a decided (intended) difference that only upstream's kubelet
// then shows the container as started. It is none if the hook had ended before, or if the container has a startup probe.
func TestAHookThatOnlyOneAgentCutsShort(t *testing.T) {
	const undecided = `readiness of main while the pod ends: only upstream has ["ready=false started=true"], only Wherry has ["ready=false started=false"]`
	for _, try := range []struct {
		hook   time.Duration
		probed bool
		class  string
	}{{11 * second, false, classHookCutShort}, {4 * second, false, undecided}, {11 * second, true, undecided}} {
		c := oneContainer()
		c.Plays = map[string][]Play{"main-0": {{Slow: map[string]time.Duration{"postStart": try.hook}}}}
		if try.probed {
			c.Spec.Containers[0].StartupProbe = &v1.Probe{}
		}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.Deleted = l.at(8)
			l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
		}
		u.call(12, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop"})
		w.call(8.1, Call{Verb: "ExecSync", Container: "main-0", Command: "preStop"})
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("readiness of main", "readiness of main-0 in the API", []span{{"0 ready=false started=true", u.at(12.1), 4 * second}}, []span{{"0 ready=false started=false", w.at(8.1), 5 * second}})
		want(t, d.found, try.class)
	}
}

// Wherry stops a sidecar that fails its liveness probe, while upstream's kubelet waits for the end of a container whose postStart hook failed.
// The pod then ends, and upstream's event names no probe: a decided (intended) difference. It is none if no hook failed, or if the kubelet
// stopped the sidecar in the wait too.
func TestAFailedProbeDuringTheStopAfterAFailedHook(t *testing.T) {
	const key = "Normal Killing spec.initContainers{side-0}"
	const undecided = `message of event Normal Killing spec.initContainers{sidecar}: upstream "Stopping container sidecar", Wherry "Init container sidecar failed liveness probe"`
	for _, try := range []struct {
		fails bool
		stop  float64 // when upstream's kubelet stops the sidecar
		class string
	}{{true, 3.3, classWhileHook}, {false, 3.3, undecided}, {true, 1.5, undecided}} {
		c := withSidecar()
		play := Play{Term: TermSlow}
		if try.fails {
			play.Fails = map[string]Window{"postStart": {}}
		}
		c.Plays = map[string][]Play{"main-0": {play}}
		u, w := newLife(), newLife()
		for l, stop := range map[*life]float64{&u: try.stop, &w: 2} {
			l.runs(1, "side-0", 0)
			l.call(1.1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
			l.call(1.1, Call{Verb: "StopContainer", Container: "main-0", Timeout: 5})
			l.call(stop, Call{Verb: "StopContainer", Container: "side-0", Timeout: 5})
		}
		u.Events[key] = Event{Count: 1, Message: "Stopping container side-0"}
		w.Events[key] = Event{Count: 1, Message: "Init container side-0 failed liveness probe"}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.events()
		want(t, d.found, try.class)
	}
}

// A pod is deleted in second 8, while upstream's kubelet waits for the end of a sidecar that failed its startup probe. Wherry stops the other
// sidecar at once: a decided (intended) difference. It is none if the probe had not failed, or if the main container had been made.
func TestADeletionWhileASidecarIsRestarted(t *testing.T) {
	for _, try := range []struct {
		fails time.Duration // until when the startup probe fails
		made  bool
		root  string
	}{{7 * second, false, classWhileStop}, {0, false, ""}, {7 * second, true, ""}} {
		c := withSidecar()
		c.Kind, c.Spec.InitContainers = Restart, append(c.Spec.InitContainers, v1.Container{Name: "side-1", RestartPolicy: new(v1.ContainerRestartPolicyAlways), StartupProbe: &v1.Probe{FailureThreshold: 2}})
		c.Plays = map[string][]Play{"main-0": {{}}, "side-0": {{}}, "side-1": {{Term: TermIgnored}}}
		if try.fails > 0 {
			c.Plays["side-1"][0].Fails = map[string]Window{"startup": {To: try.fails}}
		}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.Deleted = l.at(8)
			if !try.made {
				l.Calls = l.Calls[:1]
			}
			l.runs(1, "side-0", 0)
			l.runs(1, "side-1", 0)
			l.call(4, Call{Verb: "StopContainer", Container: "side-1", Timeout: 7, Failed: true})
		}
		u.call(12, Call{Verb: "StopContainer", Container: "side-0", Timeout: 2}) // the next kubelet has no spec, and so no hook
		w.call(8.1, Call{Verb: "ExecSync", Container: "side-0", Command: "preStop"})
		if try.made { // the main container ends by itself before the sidecar is stopped, which then ends with the pod
			c.Plays["main-0"][0] = Play{Exits: true, Runs: second}
		}
		if got := newDiffer(c, u.Trace, w.Trace, never).root(); got != try.root {
			t.Errorf("%+v: %q, want %q", try, got, try.root)
		}
	}
}
