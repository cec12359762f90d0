package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// DefaultGrace is the grace period of a pod that does not say (30 s).
const DefaultGrace = 30 * time.Second

// kill ends one container. left is the rest of its grace period. The preStop hook runs first, inside the grace period; then
// StopContainer gets the rest as its timeout, and at least Policy.MinGrace. A hook that is still running when the grace period
// is over goes on beside StopContainer until the container has ended.
func (t *turn) kill(c *pod.Container, left time.Duration, cause pod.Cause, why pod.Why) {
	t.killInTurn(c, left, cause, why, false)
}

// killInTurn is kill for a container that may have to outlive others (blocked): its StopContainer waits until they have ended,
// its hook does not wait.
func (t *turn) killInTurn(c *pod.Container, left time.Duration, cause pod.Cause, why pod.Why, blocked bool) {
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
	if inFlight != nil && !shorter {
		return
	}
	if cm.StopID == c.ID {
		if cm.Stopped && t.stale { // it has ended; the next inspection will show it
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
		Op: pod.OpStopContainer, Container: c.Name, ID: c.ID, Grace: max(left, t.in.Policy.MinGrace), Cause: cause, Why: why,
	})
}

// alone returns the rest of the grace period of a container that ends while its pod goes on. The period starts when the agent
// first decides to end the container, and its length is fixed then: a probe that fails later does not change it.
func (t *turn) alone(c *pod.Container, cause pod.Cause) time.Duration {
	if e := t.in.Memory.end(c.ID); e != nil {
		return min(e.Began.Add(e.Grace).Sub(t.in.Now), e.Grace)
	}
	grace := t.aloneGrace(pod.SpecOf(t.in.Pod, c.Name), cause)
	t.plan.Ends = append(t.plan.Ends, End{Name: c.Name, ID: c.ID, Cause: cause, Began: t.in.Now, Grace: grace})
	return grace
}

// End is a container instance that ends while its pod goes on, with its grace period.
type End struct {
	Name, ID string
	Cause    pod.Cause
	Began    time.Time
	Grace    time.Duration
}

// aloneGrace returns the grace period of the failed probe if the probe has one, and that of the pod otherwise.
func (t *turn) aloneGrace(c *v1.Container, cause pod.Cause) time.Duration {
	var probe *v1.Probe
	switch {
	case c == nil:
	case cause == pod.CauseLiveness:
		probe = c.LivenessProbe
	case cause == pod.CauseStartup:
		probe = c.StartupProbe
	}
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return seconds(*probe.TerminationGracePeriodSeconds)
	}
	return specGrace(&t.in.Pod.Spec)
}

func specGrace(spec *v1.PodSpec) time.Duration {
	if spec.TerminationGracePeriodSeconds == nil {
		return DefaultGrace
	}
	return seconds(*spec.TerminationGracePeriodSeconds)
}

// seconds converts seconds of the API to a duration. A negative value counts as 0, and a huge one does not overflow.
func seconds(s int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(s, 0), most)) * time.Second
}

// stopStrays ends containers that should not run: those in another sandbox than the pod's, those that a newer instance has
// replaced, and those that the spec does not have.
func (t *turn) stopStrays() {
	if t.sandbox == nil {
		return
	}
	for i := range t.in.Observed.Containers {
		c := &t.in.Observed.Containers[i]
		if !t.alive(c) {
			continue
		}
		spec := pod.SpecOf(t.in.Pod, c.Name)
		if spec == nil || !t.inSandbox(c) || t.in.Observed.Newest(c.Name).ID != c.ID {
			cause := pod.CauseStray
			if spec != nil && !t.inSandbox(c) {
				cause = pod.CauseSandbox
			}
			t.killFor(cause, c, WhyStray)
		}
	}
}
