package decide

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

const restartAllAction = v1.ContainerRestartRuleActionRestartAllContainers

// clear removes all that is left of a pod that no source has: dead containers, sandboxes, directories. Nothing of the pod runs
// when clear is called.
func (t *turn) clear() {
	t.plan.Phase = PhaseClearing
	o := t.in.Observed
	for i := range o.Containers {
		t.remove(pod.OpRemoveContainer, o.Containers[i].Name, o.Containers[i].ID, WhyNothingRemembers)
	}
	if len(o.Containers) > 0 {
		return
	}
	for i := range o.Sandboxes {
		t.remove(pod.OpRemoveSandbox, "", o.Sandboxes[i].ID, WhyNothingRemembers)
	}
	if len(o.Sandboxes) > 0 || len(t.in.InFlight) > 0 {
		return
	}
	if t.in.Memory.Forgotten {
		t.plan.Phase = PhaseGone
		t.plan.Why = WhyGone
		return
	}
	if t.due(pod.OpForget, "") {
		t.begin(pod.Action{Op: pod.OpForget, Why: WhyNothingRemembers})
	}
}

func (t *turn) remove(op pod.Op, name, id string, why pod.Why) {
	if t.due(op, id) {
		t.begin(pod.Action{Op: op, Container: name, ID: id, Why: why})
	}
}

// EndReported reports whether the API server knows that the pod has ended. The node then needs no record of its containers any more. A
// static pod has no such status, so the answer for it is false.
func EndReported(p *v1.Pod) bool {
	return p != nil && !pod.IsStatic(p) && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed)
}

// needless reports whether the dead containers of the pod no longer decide anything: the API server already knows how the pod ended, or
// the node has ended the pod, so that it is Failed whatever the exit codes are. No exit code is lost: the turn that removes the
// containers also derives a status with their exit codes, and that status is kept until the API server has it. needless is called only
// while the pod is active or after it has ended, not while its containers are stopped.
func (t *turn) needless() bool {
	return EndReported(t.in.Pod) || t.in.Memory.Stop != nil && !pod.IsStatic(t.in.Pod)
}

// prune removes dead attempts beyond the number that is kept for logs, and sandboxes without containers. It keeps the newest
// attempt of a container, because its exit code decides whether the container runs again. It removes the newest attempt too if
// Node.Excess names it and needless is true.
func (t *turn) prune() {
	if t.stale {
		return
	}
	o := t.in.Observed
	for i := range o.Containers {
		c := &o.Containers[i]
		newer, dead := t.newer(i)
		excess := slices.Contains(t.in.Node.Excess, c.ID)
		if t.alive(c) || newer == 0 && !(excess && t.needless()) {
			continue
		}
		limit := t.in.Policy.DeadContainersPerContainer
		switch {
		case excess:
			t.remove(pod.OpRemoveContainer, c.Name, c.ID, WhyExcess)
		case c.State != pod.StateCreated && (limit < 0 || dead < limit):
		case t.in.Now.Before(c.FinishedAt.Add(t.in.Policy.DeadContainerAge)):
			t.wake(c.FinishedAt.Add(t.in.Policy.DeadContainerAge))
		default:
			t.remove(pod.OpRemoveContainer, c.Name, c.ID, WhyOldAttempt)
		}
	}
	for i := 1; i < len(o.Sandboxes); i++ {
		if sb := &o.Sandboxes[i]; !sb.Ready && !t.inhabited(sb.ID) {
			t.remove(pod.OpRemoveSandbox, "", sb.ID, WhyOldSandbox)
		}
	}
}

// newer counts the attempts of a container that are newer than the attempt at index i of Observed.Containers (all), and how many of
// them are dead (dead). dead never includes the newest attempt, which is the container's state in the pod's status; the attempt before
// the newest is its last state.
func (t *turn) newer(i int) (all, dead int) {
	o := t.in.Observed
	for j := range i {
		if o.Containers[j].Name == o.Containers[i].Name {
			if all > 0 && o.Containers[j].State == pod.StateExited {
				dead++
			}
			all++
		}
	}
	return all, dead
}

func (t *turn) inhabited(sandbox string) bool {
	for i := range t.in.Observed.Containers {
		if t.in.Observed.Containers[i].SandboxID == sandbox {
			return true
		}
	}
	return false
}

// restartAll carries out the RestartAllContainers rule: every container is stopped and removed, in the same sandbox, and then all
// start again ("The configured terminationGracePeriodSeconds is not respected, and any configured preStop hooks are not
// executed"). It reports whether such a restart is going on.
func (t *turn) restartAll() bool {
	if !t.in.Memory.RestartingAll && !t.restartAllTriggered() {
		return false
	}
	if t.sandbox == nil { // a new sandbox starts all containers anyway
		t.plan.RestartingAll = false
		return false
	}
	t.plan.RestartingAll = true
	if t.stopAlive(pod.CauseRestartAll, ruleOf(pod.CauseRestartAll).why) || t.busy(pod.OpStartContainer) || t.stale {
		return true
	}
	left := false
	for i := range t.in.Observed.Containers {
		c := &t.in.Observed.Containers[i]
		if t.isEphemeral(c.Name) {
			continue
		}
		left = true
		t.remove(pod.OpRemoveContainer, c.Name, c.ID, WhyRestartAll)
	}
	t.plan.RestartingAll = left
	return left
}

// restartAllTriggered reports whether a container of this sandbox ended with an exit code for which a rule restarts all containers.
func (t *turn) restartAllTriggered() bool {
	triggered := false
	for i := range t.in.Observed.Containers {
		c := &t.in.Observed.Containers[i]
		if c.State != pod.StateExited || !t.inSandbox(c) || t.in.Observed.Newest(c.Name) != c {
			continue
		}
		spec := pod.SpecOf(t.in.Pod, c.Name)
		if spec == nil {
			continue
		}
		if r := MatchingRule(spec, c.ExitCode); r != nil && r.Action == restartAllAction {
			t.crashUntil(c, t.memory(c.Name))
			triggered = true
		}
	}
	return triggered
}
