package differ

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A static pod ends by itself in second 14, and once more after its manifest was changed in second 20. Only Wherry shows after each end how the
// container had ended, which is a decided (intended) difference. It is none if Wherry shows that before the end, or if one of the agents does not
// show that the container ran.
func TestAStaticPodThatEndsInEachLife(t *testing.T) {
	const ended, ran, waits = "terminated 1 Error 137", "running 1", "waiting 1 CrashLoopBackOff"
	const decided = "states of main while the pod ends: only Wherry tells of each end at once"
	for name, try := range map[string]struct {
		at    float64 // when Wherry shows in the first life how the container ended
		runsU string  // what upstream's kubelet shows of the container in the next life
		runsW string
		class string
	}{
		"it ends in both lives":              {14.1, ran, ran, decided},
		"it is shown as ended before":        {9, ran, ran, `states of main: only Wherry has ["running" "terminated Error 137"]`},
		"only upstream shows that it ran on": {14.1, "running 2", ran, `states of main: only upstream has ["running"], only Wherry has ["terminated Error 137" "running" "terminated Error 137"]`},
		"only Wherry shows that it ran on":   {14.1, ran, "running 2", `states of main: only Wherry has ["running" "terminated Error 137"]`},
	} {
		c := oneContainer()
		c.Kind, c.Acts = Static, []Act{{At: 20 * second, Do: WriteFile, Container: "main-0"}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.call(14, Call{Verb: "StopPodSandbox"})
			l.call(20.2, Call{Verb: "RunPodSandbox"})
			l.runs(20.3, "main-0", lifeAttempts)
			l.call(34, Call{Verb: "StopPodSandbox"})
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("states of main", "states of main-0 in the API", []span{
			{ran, u.at(3), 3 * second}, {ended, u.at(6), second}, {waits, u.at(7), 13 * second},
			{try.runsU, u.at(23), 3 * second}, {ended, u.at(26), second}, {waits, u.at(27), 13 * second},
		}, []span{
			{ran, w.at(3), 3 * second}, {waits, w.at(6), 8 * second}, {ended, w.at(try.at), 8 * second},
			{try.runsW, w.at(23), 3 * second}, {waits, w.at(26), 8 * second}, {ended, w.at(34), 6 * second},
		})
		if name == "it ends in both lives" {
			want(t, d.found, try.class)
		} else if len(d.found) != 1 || Decided(d.found[0].Class) {
			t.Errorf("%s: %q", name, classes(d.found))
		}
	}
}

// The deadline of a static pod passes in second 14, and its container ignores SIGTERM until second 22. Its manifest is removed before, in second
// 20. Upstream's kubelet says Failed at once, and Wherry when the container has ended: a decided (intended) difference. It is none if the
// container had ended when upstream's kubelet said so, if Wherry never says Failed, or not even that the pod is not ready, or if the pod is one
// of the API.
func TestAMirrorThatIsFailedAtOnce(t *testing.T) {
	const undecided = `phases: only upstream has ["Failed DeadlineExceeded"]`
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	over := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}
	for name, try := range map[string]struct {
		kind              Kind
		ended, mute, deaf bool
		class             string
	}{
		"it runs on":                      {kind: Static, class: classFailedAtOnce},
		"it has ended":                    {kind: Static, ended: true, class: undecided},
		"Wherry does not say that":        {kind: Static, mute: true, class: undecided},
		"Wherry says that it is ready":    {kind: Static, deaf: true, class: undecided},
		"it is no static pod but removed": {kind: Life, class: undecided},
	} {
		c := oneContainer()
		c.Kind, c.Spec.ActiveDeadlineSeconds = try.kind, new(int64(14))
		c.Plays = map[string][]Play{"main-0": {{Term: TermIgnored}}}
		u, w := newLife(), newLife()
		for _, l := range []*life{&u, &w} {
			l.Deleted = l.at(20)
			l.status(1, v1.PodRunning, "", runs)
			l.call(14, Call{Verb: "StopContainer", Container: "main-0", Timeout: 8})
		}
		state := runs
		if try.ended {
			state = over
		}
		u.status(13.5, v1.PodFailed, "DeadlineExceeded", state)
		if !try.deaf {
			w.status(14, v1.PodRunning, "", runs)
			w.Statuses[1].Pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "PodFailed"}}
		}
		if !try.mute {
			w.status(22, v1.PodFailed, "DeadlineExceeded", over)
		}
		d := newDiffer(c, u.Trace, w.Trace, never)
		d.series("phases", "the phases in the API", u.beforeRemoval(u.phases()), w.beforeRemoval(w.phases()))
		if got := classes(d.found); len(got) != 1 || got[0] != try.class {
			t.Errorf("%s: %q, want %q", name, got, try.class)
		}
	}
	if !Decided(classFailedAtOnce) {
		t.Error("the class is not decided")
	}
}
