package podstatus

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// hooked reports whether a container runs and its postStart hook has not completed: "the container's status is not set to RUNNING
// until the postStart handler completes". If the API status already shows the container as running, it stays running.
func (d *derivation) hooked(x *subject) bool {
	if x.inst == nil || x.inst.State != pod.StateRunning || d.Plan.Ending || d.Pod.DeletionTimestamp != nil {
		return false
	}
	reported := x.old != nil && (x.old.State.Running != nil || noState(x.old)) && x.old.ContainerID == d.id(x.inst)
	return !reported && !decide.PostStartDone(x.spec, x.cm, x.said, x.inst)
}

// beforeHook returns the status of a container whose postStart hook runs: the status that the container had before this attempt.
func (d *derivation) beforeHook(x *subject) v1.ContainerStatus {
	if x.old != nil && x.old.State.Running == nil && !noState(x.old) {
		return *x.old.DeepCopy()
	}
	st := v1.ContainerStatus{Name: x.spec.Name, Image: x.spec.Image, VolumeMounts: d.mounts(x.spec, x.old), State: v1.ContainerState{Waiting: d.notYet()}}
	st.RestartCount, st.LastTerminationState = int32(max(1, min(x.inst.Attempt, 1<<31-1))-1), d.lastState(x.spec.Name, x.inst, x.old)
	if x.old != nil { // the API still shows an earlier attempt, and its restart count must not fall
		st.RestartCount = max(st.RestartCount, x.old.RestartCount)
	}
	return st
}

// noState reports whether a container status has no state at all. For a static pod, a new agent takes only the container IDs and the
// results of probes from the mirror, so the statuses that it begins with have no state.
func noState(st *v1.ContainerStatus) bool { return st.State == (v1.ContainerState{}) }
