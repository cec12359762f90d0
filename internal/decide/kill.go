package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// DefaultGrace is the grace period of a pod that does not say (30 s).
const DefaultGrace = 30 * time.Second

// kill ends one container within the time left: preStop hook first, inside the same grace period, then
// StopContainer with what is left of it, and never with less than leastGrace.
func (t *turn) kill(c *pod.Container, left time.Duration, why pod.Why) {
	t.killInTurn(c, left, why, false)
}

// killInTurn is kill for a container whose TERM may have to wait for others (blocked); its hook does not wait.
func (t *turn) killInTurn(c *pod.Container, left time.Duration, why pod.Why, blocked bool) {
	cm := t.memory(c.Name)
	if hook := t.busyID(pod.OpPostStart, c.ID); hook != nil {
		t.cancel(*hook, WhySuperseded)
	}
	inFlight := t.busyID(pod.OpStopContainer, c.ID)
	hook := t.busyID(pod.OpPreStop, c.ID)
	switch {
	case hook != nil && left > 0:
		return
	case hook != nil:
		t.cancel(*hook, WhyPreStopOverran)
	case left > 0 && inFlight == nil && c.State == pod.StateRunning && t.preStop(c) &&
		cm.PreStoppedID != c.ID && cm.StopID != c.ID:
		t.begin(pod.Action{Op: pod.OpPreStop, Container: c.Name, ID: c.ID, Grace: left, Why: why})
		return
	}
	if blocked && left > 0 {
		return
	}
	shorter := t.graceShrank()
	if inFlight != nil && !shorter {
		return
	}
	if cm.StopID == c.ID {
		if cm.Stopped && t.stale { // it is gone, the inspection has yet to show it
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
		Op: pod.OpStopContainer, Container: c.Name, ID: c.ID, Grace: max(left, t.leastGrace(c, cm)), Why: why,
	})
}

// leastGrace is the window that a StopContainer gives though the grace period is over, used up by a hook or by an agent
// that was down. Where less than that was asked for, and no hook shares it, that is what the container gets: "grace
// periods are honoured". Zero asks for the smallest.
func (t *turn) leastGrace(c *pod.Container, cm *ContainerMemory) time.Duration {
	least := t.in.Policy.MinGrace
	if t.preStop(c) {
		return least
	}
	asked := t.plan.StopGrace
	if !t.ending {
		asked = t.fullGrace(pod.SpecOf(t.in.Pod, c.Name), c, cm)
	}
	if asked > 0 {
		return min(asked, least)
	}
	return least
}

// restartGrace is the time that one container has to end when it alone is stopped, less what its preStop hook has
// taken.
func (t *turn) restartGrace(c *v1.Container, inst *pod.Container, cm *ContainerMemory) time.Duration {
	grace := t.fullGrace(c, inst, cm)
	if cm.PreStoppedID == inst.ID {
		grace -= cm.PreStopTook
	}
	return grace
}

// fullGrace is the probe's own grace period where the container failed one that has it, else the pod's.
func (t *turn) fullGrace(c *v1.Container, inst *pod.Container, cm *ContainerMemory) time.Duration {
	grace := specGrace(&t.in.Pod.Spec)
	if c != nil && cm.ProbedID == inst.ID && cm.Unhealthy {
		probe := c.LivenessProbe
		if !cm.Started && c.StartupProbe != nil {
			probe = c.StartupProbe
		}
		if probe != nil && probe.TerminationGracePeriodSeconds != nil {
			grace = seconds(*probe.TerminationGracePeriodSeconds)
		}
	}
	return grace
}

func specGrace(spec *v1.PodSpec) time.Duration {
	if spec.TerminationGracePeriodSeconds == nil {
		return DefaultGrace
	}
	return seconds(*spec.TerminationGracePeriodSeconds)
}

// seconds of the API as a duration: negative counts as none, and nothing overflows.
func seconds(s int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(s, 0), most)) * time.Second
}

// stopStrays ends containers that no rule wants: in another sandbox than the pod's, older than another of their
// name, or without a spec.
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
			cause := CauseNone
			if spec != nil && !t.inSandbox(c) {
				cause = CauseSandbox
			}
			t.killFor(cause, c, WhyStray)
		}
	}
}
