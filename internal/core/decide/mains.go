package decide

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// mains decides about all main containers in the same turn. While a container with a postStart hook starts, and until the hook is done, the
// containers after it in the spec do not start. Only its first instance in a sandbox delays them. Its restarts and its back-off do not,
// because otherwise a hook that fails each time could keep the other containers from starting.
func (t *turn) mains() {
	hold := false
	for i := range t.in.Pod.Spec.Containers {
		c := &t.in.Pod.Spec.Containers[i]
		inst := t.in.Observed.Newest(c.Name)
		why := WhyNeverStarted
		if inst == nil {
			if code, lost := t.lost(c.Name); lost {
				if !MayRestart(&t.in.Pod.Spec, c, code) {
					continue
				}
				why = WhyLost
			}
		}
		s := t.drive(c, inst, why, hold)
		if s == stepBusy && c.Lifecycle != nil && c.Lifecycle.PostStart != nil && !t.endedBefore(c.Name) {
			hold = true
		}
	}
}

// endedBefore reports whether an instance of the container has ended in the pod's sandbox.
func (t *turn) endedBefore(name string) bool {
	return slices.ContainsFunc(t.in.Observed.Containers, func(c pod.Container) bool {
		return c.Name == name && t.inSandbox(&c) && c.State != pod.StateCreated && !t.alive(&c)
	})
}

// ephemeral starts each ephemeral container once ("they will never be automatically restarted").
func (t *turn) ephemeral() {
	for i := range t.in.Pod.Spec.EphemeralContainers {
		c := (*v1.Container)(&t.in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		inst := t.in.Observed.Newest(c.Name)
		if inst == nil {
			if _, lost := t.lost(c.Name); !lost && t.sandbox != nil {
				t.drive(c, nil, WhyEphemeral, false)
			}
			continue
		}
		if inst.State == pod.StateCreated {
			t.drive(c, inst, WhyEphemeral, false)
		}
	}
}

// lost reports whether a container has run according to the API status although the runtime does not have it (the runtime's state was
// wiped, or someone removed the container). Such a container counts as ended, with the exit code in the status, or as killed if the status
// has none.
func (t *turn) lost(name string) (exit int32, lost bool) {
	st := pod.StatusOf(&t.in.Pod.Status, name)
	switch {
	case st == nil || t.in.Memory.RestartedAll && !t.isEphemeral(name) || NeverMade(&t.in.Pod.Status, st):
	case st.State.Terminated != nil:
		return st.State.Terminated.ExitCode, true
	case st.State.Running != nil:
		return pod.ExitLost, true
	case st.LastTerminationState.Terminated != nil:
		return st.LastTerminationState.Terminated.ExitCode, true
	}
	return
}

// ReasonStatusUnknown is the reason in the status of a container whose end nobody saw.
const ReasonStatusUnknown = "ContainerStatusUnknown"

// NeverMade reports whether a terminated status belongs to a container that was never created. A pod that ends reports containers
// that never started as terminated, too. If the manifest of a static pod comes back, the mirror may still have such a status.
func NeverMade(s *v1.PodStatus, st *v1.ContainerStatus) bool {
	end := st.State.Terminated
	return end != nil && end.Reason == ReasonStatusUnknown && end.ContainerID == "" && st.ContainerID == "" &&
		s.Phase != v1.PodFailed && s.Phase != v1.PodSucceeded
}

// finished returns the cause for which the pod is over, so that none of its containers will run again. It returns CauseNone if the pod
// is not over.
func (t *turn) finished() pod.Cause {
	if t.in.Memory.Finished {
		return pod.CauseFinished
	}
	// An old inspection may lack a container that was just started, so wait for a newer inspection.
	if t.stale || t.busy(pod.OpStartContainer) {
		return pod.CauseNone
	}
	sb, _ := UsableSandbox(t.in.Pod, t.in.Observed)
	t.sandbox = sb
	defer func() { t.sandbox = nil }()
	if (t.in.Memory.RestartingAll && sb != nil) || t.restartAllTriggered() {
		return pod.CauseNone
	}
	if t.initFailed() {
		return pod.CauseInitFailed
	}
	if t.mainsEnded() {
		return pod.CauseFinished
	}
	if sb == nil && len(t.in.Observed.Sandboxes) > 0 && !t.mayReplaceSandbox() {
		return pod.CauseSandboxLost
	}
	return pod.CauseNone
}

// mainsEnded reports whether every main container has ended for good. (The API allows no pod without a main container.)
func (t *turn) mainsEnded() bool {
	if len(t.in.Pod.Spec.Containers) == 0 {
		return false
	}
	for i := range t.in.Pod.Spec.Containers {
		c := &t.in.Pod.Spec.Containers[i]
		inst := t.in.Observed.Newest(c.Name)
		if inst == nil {
			code, lost := t.lost(c.Name)
			if !lost || MayRestart(&t.in.Pod.Spec, c, code) {
				return false
			}
			continue
		}
		if inst.State == pod.StateCreated || t.alive(inst) ||
			StartsAgain(&t.in.Pod.Spec, c, t.in.Memory, inst, exitCode(inst)) {
			return false
		}
	}
	return true
}

// initFailed reports whether an init container failed for good ("if the Pod has a restartPolicy of Never, and an init
// container fails during startup of that Pod, Kubernetes treats the overall Pod as failed").
func (t *turn) initFailed() bool {
	if t.initialized() {
		return false
	}
	for i := range t.in.Pod.Spec.InitContainers {
		c := &t.in.Pod.Spec.InitContainers[i]
		inst := t.in.Observed.Newest(c.Name)
		if inst == nil || t.alive(inst) {
			continue
		}
		if code := exitCode(inst); code != 0 && !MayRestart(&t.in.Pod.Spec, c, code) {
			return true
		}
	}
	return false
}

// mayReplaceSandbox reports whether a pod that lost its sandbox may run again in a new one. A pod with restartPolicy Never may do so only
// if none of its containers has been created yet, or if a main container has a restart policy of its own other than Never.
func (t *turn) mayReplaceSandbox() bool {
	spec := &t.in.Pod.Spec
	if spec.RestartPolicy != v1.RestartPolicyNever || len(t.in.Observed.Containers) == 0 {
		return true
	}
	for i := range spec.Containers {
		if rp := spec.Containers[i].RestartPolicy; rp != nil && *rp != v1.ContainerRestartPolicyNever {
			return true
		}
	}
	return false
}
