package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// step is how far the start of a container has come.
type step uint8

const (
	stepWait step = iota // nothing can be done for the container: it waits for a back-off or another container, or will never run again
	stepBusy             // the container is being started or stopped
	stepUp               // the container runs and its postStart hook is done
)

// drive decides about one container: it plans the next action that the container needs to run as its spec asks. inst is its newest
// instance; nil: there is none, and first is the reason to start one. If hold is true, the container must not start now.
func (t *turn) drive(c *v1.Container, inst *pod.Container, first pod.Why, hold bool) step {
	s := t.advance(c, inst, first, hold)
	t.step(ruleContainer, c.Name)
	return s
}

// advance does what drive does, without recording a step.
func (t *turn) advance(c *v1.Container, inst *pod.Container, first pod.Why, hold bool) step {
	if t.busyName(pod.OpStartContainer, c.Name) {
		return stepBusy
	}
	cm := t.memory(c.Name)
	if inst == nil {
		if !t.passed(t.vanishedUntil(cm)) {
			return stepWait
		}
		return t.start(c, cm, first, hold)
	}
	if t.alive(inst) && !t.inSandbox(inst) {
		return stepBusy // the container is being ended together with its sandbox
	}
	switch inst.State {
	case pod.StateCreated:
		if inst.CutShort {
			return t.start(c, cm, WhyCutShort, hold)
		}
		if inst.ID == cm.StartFailedID || !t.inSandbox(inst) || t.changed(inst) {
			return t.start(c, cm, WhyStartFailed, hold)
		}
		return t.adopt(inst, cm, hold)
	case pod.StateRunning:
		return t.running(c, inst, cm)
	case pod.StateUnknown:
		if t.alive(inst) {
			return t.running(c, inst, cm)
		}
		return t.exited(c, inst, cm, hold)
	case pod.StateExited:
		return t.exited(c, inst, cm, hold)
	}
	return stepWait
}

// exitCode returns the exit code of a dead container. A container whose end nobody saw counts as killed.
func exitCode(c *pod.Container) int32 {
	if c.State == pod.StateUnknown {
		return pod.ExitLost
	}
	return c.ExitCode
}

// start creates and starts the next attempt of a container, after its image is present.
func (t *turn) start(c *v1.Container, cm *ContainerMemory, why pod.Why, hold bool) step {
	if t.aliveNamed(c.Name) { // an older instance is still ending
		return stepBusy
	}
	if !t.passed(cm.StartUntil) {
		return stepWait
	}
	if !cm.Pulled || cm.PulledImage != c.Image {
		return t.pull(c, cm)
	}
	if t.sandbox == nil || !t.in.Memory.SetUp || hold || t.groupMustGrow() {
		return stepWait
	}
	t.begin(pod.Action{Op: pod.OpStartContainer, Container: c.Name, Attempt: t.nextAttempt(c.Name, cm), Size: t.size(c.Name), Why: why})
	return stepBusy
}

// pull makes the image present. It needs neither sandbox nor volumes.
func (t *turn) pull(c *v1.Container, cm *ContainerMemory) step {
	if cm.PulledImage == c.Image && t.in.Now.Before(cm.PullUntil) {
		t.wake(cm.PullUntil.Add(PullErrorShown - cm.PullDelay))
		t.wake(cm.PullUntil)
		t.wait(WhyBackOff)
		return stepWait
	}
	t.begin(pod.Action{Op: pod.OpPullImage, Container: c.Name, Why: WhyImage})
	return stepBusy
}

// adopt starts a container that was created but not started: the agent was restarted, or the start was canceled, between the two calls.
func (t *turn) adopt(inst *pod.Container, cm *ContainerMemory, hold bool) step {
	if t.aliveNamed(inst.Name) {
		return stepBusy
	}
	if !t.passed(cm.StartUntil) || hold {
		return stepWait
	}
	if t.in.Memory.SetUp {
		t.begin(pod.Action{
			Op: pod.OpStartContainer, Container: inst.Name, ID: inst.ID, Attempt: inst.Attempt, Why: WhyCreated,
		})
	}
	return stepBusy
}

// nextAttempt returns a number that is greater than every attempt that exists or may exist in the runtime, or that the API status or, for
// a static pod, the checkpoint shows.
func (t *turn) nextAttempt(name string, cm *ContainerMemory) uint32 {
	var attempt uint32
	if inst := t.in.Observed.Newest(name); inst != nil {
		attempt = following(inst.Attempt)
	}
	if cm.AttemptKnown {
		attempt = max(attempt, following(cm.HighestAttempt))
	}
	attempt = max(attempt, cm.Attempts)
	if st := pod.StatusOf(&t.in.Pod.Status, name); st != nil {
		reported := uint32(max(st.RestartCount, 0))
		if st.ContainerID != "" {
			reported++
		}
		attempt = max(attempt, reported)
	}
	return attempt
}

// changed reports whether the container's definition in the spec has changed since the container was created.
func (t *turn) changed(c *pod.Container) bool {
	return crispec.SpecChanged(t.in.Hashes[c.Name], c.SpecHash)
}
