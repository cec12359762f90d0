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

// Wherry starts a container again while upstream's kubelet waits for the hook of another one. From then on the two lives differ.
func TestWhatWherryDoesDuringAHook(t *testing.T) {
	u, w := newLife(), newLife()
	want(t, Compare(twoContainers(), u.hooked(), w.hooked(5)), classWhileHook)
}

// The same difference without a hook is reported unchanged.
func TestWhatWherryDoesBesideNoHook(t *testing.T) {
	c := twoContainers()
	c.Plays = nil
	u, w := newLife(), newLife()
	want(t, Compare(c, u.hooked(), w.hooked(5)), `order of first starts: only Wherry has ["main"]`, "calls of main: only Wherry has a further instance")
}

// What both do during the hook is no difference, and hides no difference.
func TestWhatBothDoDuringAHook(t *testing.T) {
	u, w := newLife(), newLife()
	a, b := u.hooked(5), w.hooked(5)
	b.Calls = append(b.Calls, Call{At: w.at(30), Verb: "StopContainer", Container: "main-1", Attempt: 1, Timeout: 3})
	want(t, Compare(twoContainers(), a, b), `calls of main: only Wherry has ["stop(3)"]`)
}

// Only upstream's kubelet restarts a container after the pod's deletion.
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

// A sandbox is lost in a pod whose policy is Never; one container has a restart policy of its own.
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

// hooked returns the life of two containers. The first has a postStart hook; the second is started again at these seconds.
func (l life) hooked(again ...float64) *Trace {
	l.call(1, Call{Verb: "ExecSync", Container: "main-0", Command: "postStart"})
	for _, at := range again {
		l.call(at, Call{Verb: "CreateContainer", Container: "main-1", Attempt: 1})
		l.call(at, Call{Verb: "StartContainer", Container: "main-1", Attempt: 1})
	}
	return l.Trace
}

// A pod is deleted with less time while it is already ending.
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
