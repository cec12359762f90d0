package differ

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// crossedCase is a case with a Crossing: main-0 exits in second 31 and an act comes in second 31.
func crossedCase() *Case {
	c := twoContainers()
	c.Plays = map[string][]Play{"main-0": {{Exits: true, Runs: 30 * time.Second}}}
	c.Acts = []Act{{At: 31 * time.Second, Do: Debug, Container: "debug"}}
	return c
}

// crossedLife is the trace of crossedCase.
func crossedLife() life {
	l := newLife()
	l.call(1, Call{Verb: "CreateContainer", Container: "main-1"})
	l.call(1, Call{Verb: "StartContainer", Container: "main-1"})
	l.ready(1, v1.ConditionTrue, "")
	return l
}

// The comparison finds a fault before the Crossing, and excuses the same fault after it.
func TestAFaultBeforeTheCrossingIsFound(t *testing.T) {
	for name, try := range map[string]struct {
		fault func(l life, second float64)
		class string
	}{
		"a stop": {func(l life, second float64) {
			l.call(second, Call{Verb: "StopContainer", Container: "main-1", Timeout: 8})
		}, `calls of main: only Wherry has ["stop(8)"]`},
		"an instance": {func(l life, second float64) {
			l.call(second, Call{Verb: "CreateContainer", Container: "debug"})
		}, "calls of ephemeral: only Wherry has an instance"},
		"a condition": {func(l life, second float64) { l.ready(second, v1.ConditionFalse, "ContainersNotReady") }, `condition Ready: only Wherry has ["False ContainersNotReady"]`},
		"an event": {func(l life, second float64) {
			l.Events["Normal Killing spec.containers{main-0}"] = Event{Count: 1, Message: "Stopping container main-0", First: l.at(second)}
		}, "event Normal Killing spec.containers{main}: upstream none, Wherry one"},
		"a sandbox": {func(l life, second float64) { l.call(second, Call{Verb: "RunPodSandbox", Attempt: 1}) },
			`sandboxes: only upstream has ["1"], only Wherry has ["2"]`},
	} {
		for second, found := range map[float64]bool{15: true, 27: false, 33: false} {
			u, w := crossedLife(), crossedLife()
			try.fault(w, second)
			v := CompareAll(crossedCase(), u.Trace, w.Trace)
			if v.Crossing == nil || v.Crossing.At != 31*time.Second {
				t.Fatalf("the crossing is %+v, want one in second 31", v.Crossing)
			}
			if !hasClass(v.Found, try.class) {
				t.Errorf("%s in second %g: the whole comparison finds %q", name, second, classes(v.Found))
			}
			v.Settle()
			if found {
				want(t, v.Found, try.class)
			} else {
				want(t, v.Found)
			}
		}
	}
}

// If one agent makes a call before the Crossing, and the other agent makes the same call after the Crossing, no call is missing. The
// delay is a difference only if the first call came more than 5 s before the Crossing.
func TestWhatTheOtherSideDoesAfterTheCrossing(t *testing.T) {
	u, w := crossedLife(), crossedLife()
	for l, second := range map[*life]float64{&u: 24, &w: 32} {
		l.call(second, Call{Verb: "StopContainer", Container: "main-1", Timeout: 8})
		l.ready(second, v1.ConditionFalse, "ContainersNotReady")
		l.ready(second+3, v1.ConditionTrue, "")
	}
	v := CompareAll(crossedCase(), u.Trace, w.Trace)
	v.Settle()
	want(t, v.Found, "time of StopContainer of main#0: Wherry is later")
	u, w = crossedLife(), crossedLife()
	for l, second := range map[*life]float64{&u: 27, &w: 33} {
		l.call(second, Call{Verb: "StopContainer", Container: "main-1", Timeout: 8})
	}
	v = CompareAll(crossedCase(), u.Trace, w.Trace)
	v.Settle()
	want(t, v.Found)
}

// A sandbox that is left in the runtime, or a pod that stays in the API, is a difference even if the case has a Crossing.
func TestACrossingExcusesNothingThatIsLeft(t *testing.T) {
	u, w := crossedLife(), crossedLife()
	w.Left, w.Gone = []string{"sandbox 0"}, false
	v := CompareAll(crossedCase(), u.Trace, w.Trace)
	v.Settle()
	want(t, v.Found, `left: only Wherry has ["sandbox 0"]`, `gone: only upstream has ["true"], only Wherry has ["false"]`)
}
