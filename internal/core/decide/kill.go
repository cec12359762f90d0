package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// DefaultGrace is the grace period of a pod whose spec has none (30 s).
const DefaultGrace = 30 * time.Second

// kill ends one container. left is what remains of its grace period. The preStop hook runs first, inside the grace period; then
// StopContainer gets the time that remains as its timeout, and at least leastGrace. A hook that still runs when the grace period is
// over continues in parallel with StopContainer until the container has ended. If the container has to outlive others (blocked),
// StopContainer is called only after the others have ended; the hook does not wait for them. If a StopContainer that is in flight leaves the
// container more time than it has, a second one begins beside it.
func (t *turn) kill(c *pod.Container, left time.Duration, cause pod.Cause, why pod.Why, blocked bool) {
	cm := t.memory(c.Name)
	if hook := t.busyID(pod.OpPostStart, c.ID); hook != nil {
		t.cancel(*hook, WhySuperseded)
	}
	inFlight := t.busyID(pod.OpStopContainer, c.ID)
	switch {
	case left <= 0:
	case t.busyID(pod.OpPreStop, c.ID) != nil:
		t.wake(t.in.Now.Add(left))
		return
	case inFlight == nil && c.State == pod.StateRunning && t.preStop(c) && cm.PreStoppedID != c.ID && cm.StopID != c.ID:
		t.begin(pod.Action{Op: pod.OpPreStop, Container: c.Name, ID: c.ID, Grace: left, Cause: cause, Why: why})
		t.wake(t.in.Now.Add(left))
		return
	case blocked:
		t.wake(t.in.Now.Add(left))
		return
	}
	shorter := t.graceShrank()
	if inFlight != nil && !shorter && !t.outlasts(c, cause) {
		return
	}
	if cm.StopID == c.ID {
		if cm.Stopped && t.stale { // the container has ended; the next inspection will show this
			return
		}
		if !shorter && !t.passed(cm.StopUntil) {
			return
		}
	}
	if inFlight != nil {
		why = WhyShorterGrace
	}
	t.begin(pod.Action{
		Op: pod.OpStopContainer, Container: c.Name, ID: c.ID, Grace: max(left, t.leastGrace()), Cause: cause, Why: why,
	})
}

// outlasts reports whether the stop of a container that is in flight may take longer than the cause for which the container has to end now allows:
// the pod ends, and the stop began while only this container had to end, or before the pod's grace period became shorter; or all containers are
// restarted, which has no grace period. It is false once a StopContainer with less time is in flight too.
func (t *turn) outlasts(c *pod.Container, cause pod.Cause) bool {
	var most time.Duration
	switch {
	case t.ending:
		if alone := t.in.Memory.Ends.of(c.ID); alone != nil && alone.left(t.in.Now) <= t.left() {
			return false // the container ends in time
		}
		most = t.plan.StopGrace
	case ruleOf(cause).grace != graceNone:
		return false
	}
	for i := range t.in.InFlight {
		a := &t.in.InFlight[i]
		if a.Op == pod.OpStopContainer && a.ID == c.ID && a.Grace <= max(most, t.leastGrace()) {
			return false
		}
	}
	return true
}

// leastGrace returns the smallest timeout of a StopContainer.
func (t *turn) leastGrace() time.Duration {
	if t.atOnce() {
		return 0
	}
	return t.in.Policy.MinGrace
}

func specGrace(spec *v1.PodSpec) time.Duration {
	if spec.TerminationGracePeriodSeconds == nil {
		return DefaultGrace
	}
	return pod.Seconds(*spec.TerminationGracePeriodSeconds)
}
