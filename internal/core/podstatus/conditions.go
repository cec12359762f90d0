package podstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// These are the reasons of conditions that Kubernetes defines.
const (
	ReasonPodCompleted             = "PodCompleted"
	ReasonPodFailed                = "PodFailed"
	ReasonContainersNotReady       = "ContainersNotReady"
	ReasonContainersNotInitialized = "ContainersNotInitialized"
	ReasonReadinessGatesNotReady   = "ReadinessGatesNotReady"
	ReasonRestartAllStarted        = "RestartAllContainersStarted"
)

// conditions derives the conditions that a node owns, in the order in which the pod's object has them. The API keeps its order: the scheduler's
// PodScheduled is usually the first. With the same order, the derived status equals that of the object, and need not be kept besides it.
func (d *derivation) conditions(s *v1.PodStatus) {
	ready := d.containersReady(s)
	list := []v1.PodCondition{
		d.readyToStart(), d.initializedCondition(s), d.ready(ready), ready,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}
	if d.Omit.ReadyToStart {
		list = list[1:]
	}
	if c, ok := d.restartingAll(s.Phase); ok {
		list = append(list, c)
	}
	if c, ok := d.disrupted(); ok {
		list = append(list, c)
	}
	for i := range list {
		list[i].ObservedGeneration = d.Pod.Generation
	}
	list = append(list, d.resizing(s.Phase)...)
	for i := range list {
		c := &list[i]
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			continue
		}
		c.LastTransitionTime = d.stamp(d.Now)
		if old := condition(d.Old.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = metav1.NewTime(old.LastTransitionTime.Truncate(time.Second))
		}
	}
	has := d.Pod.Status.Conditions
	place := func(c v1.PodCondition) int {
		if at := slices.IndexFunc(has, func(o v1.PodCondition) bool { return o.Type == c.Type }); at >= 0 {
			return at
		}
		return len(has) // conditions that the object does not have yet come last
	}
	inorder.Sort(list, func(a, b v1.PodCondition) int { return place(a) - place(b) })
	s.Conditions = list
}

func condition(list []v1.PodCondition, kind v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// readyToStart returns the condition PodReadyToStartContainers: "the Pod sandbox has been successfully created and networking configured".
func (d *derivation) readyToStart() v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse}
	if sb, _ := decide.UsableSandbox(d.Pod, d.Observed); sb != nil {
		c.Status = v1.ConditionTrue
	}
	return c
}

// wasInitialized reports whether all init containers had completed at some time. This is so if there are none, if a main container
// has run, or if the last init container completed, or was a started sidecar, before the pod began to end.
func (d *derivation) wasInitialized() bool {
	n := len(d.Pod.Spec.InitContainers)
	if n == 0 || d.anyMainMade() {
		return true
	}
	for i := range d.Old.ContainerStatuses {
		if st := &d.Old.ContainerStatuses[i]; st.State.Waiting == nil || st.LastTerminationState.Terminated != nil {
			return true
		}
	}
	spec := &d.Pod.Spec.InitContainers[n-1]
	if pod.IsSidecar(spec) {
		return d.sidecarWasUp(spec)
	}
	if old := find(d.Old.InitContainerStatuses, spec.Name); old != nil {
		last := old.State.Terminated
		return last != nil && last.ExitCode == 0 && !d.endedInTheEnd(spec.Name, old)
	}
	return false
}

// endedInTheEnd reports whether a container ended after its pod had begun to end. The node stopped such a container, so an exit code of 0
// does not mean that the container completed.
func (d *derivation) endedInTheEnd(name string, old *v1.ContainerStatus) bool {
	began := d.Memory.StopBegan
	if began.IsZero() {
		return false
	}
	if inst := d.Observed.Newest(name); inst != nil && d.id(inst) == old.ContainerID {
		return !inst.FinishedAt.Before(began)
	}
	return !old.State.Terminated.FinishedAt.Time.Before(d.Clock.Shows(began))
}

// sidecarWasUp reports whether a sidecar runs and has started, or had done so when its pod began to end.
func (d *derivation) sidecarWasUp(spec *v1.Container) bool {
	inst, began := d.Observed.Newest(spec.Name), d.Memory.StopBegan
	if inst == nil || inst.StartedAt.IsZero() || (!inst.Alive() && (began.IsZero() || inst.FinishedAt.Before(began))) {
		return false
	}
	old := find(d.Old.InitContainerStatuses, spec.Name)
	reported := old != nil && old.ContainerID == d.id(inst) && old.Started != nil && *old.Started
	return reported || decide.Started(spec, d.Memory.Container(spec.Name), d.Probed.Of(inst), inst)
}

// initializedCondition returns the condition Initialized: "all init containers have completed successfully".
func (d *derivation) initializedCondition(s *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if d.outcome == v1.PodSucceeded {
		c.Reason = ReasonPodCompleted
		return c
	}
	for i := range s.ContainerStatuses { // a main container that has run shows that the init containers had completed
		if st := &s.ContainerStatuses[i]; st.State.Running != nil || (st.State.Terminated != nil && !neverBegan(st)) {
			return c
		}
	}
	var open []string
	for i := range d.Pod.Spec.InitContainers {
		spec := &d.Pod.Spec.InitContainers[i]
		st := find(s.InitContainerStatuses, spec.Name)
		if done := st.Ready || (pod.IsSidecar(spec) && st.Started != nil && *st.Started); !done {
			open = append(open, spec.Name)
		}
	}
	old := condition(d.Old.Conditions, v1.PodInitialized)
	if len(open) == 0 || (old != nil && old.Status == v1.ConditionTrue) { // once true, the condition stays true
		return c
	}
	c.Status, c.Reason = v1.ConditionFalse, ReasonContainersNotInitialized
	c.Message = fmt.Sprintf("containers with incomplete status: %s", open)
	return c
}

// containersReady returns the condition ContainersReady: "all containers in the Pod are ready", including sidecars. A pod that the node
// ends (its deadline, an eviction, a shutdown) is going to fail: it is not ready from then on, so that no Service sends it requests while
// its containers take their grace period. A deleted pod needs no such rule, because its deletionTimestamp shows that it ends.
func (d *derivation) containersReady(s *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionTrue}
	switch d.outcome {
	case v1.PodSucceeded:
		c.Status, c.Reason = v1.ConditionFalse, ReasonPodCompleted
		return c
	case v1.PodFailed:
		c.Status, c.Reason = v1.ConditionFalse, ReasonPodFailed
		return c
	case v1.PodPending, v1.PodRunning, v1.PodUnknown:
		if d.Plan.Ending && d.Memory.Stop != nil {
			c.Status, c.Reason = v1.ConditionFalse, ReasonPodFailed
			return c
		}
	}
	var unready []string
	for i := range d.Pod.Spec.InitContainers {
		spec := &d.Pod.Spec.InitContainers[i]
		if pod.IsSidecar(spec) && !find(s.InitContainerStatuses, spec.Name).Ready {
			unready = append(unready, spec.Name)
		}
	}
	for i := range d.Pod.Spec.Containers {
		if name := d.Pod.Spec.Containers[i].Name; !find(s.ContainerStatuses, name).Ready {
			unready = append(unready, name)
		}
	}
	if len(unready) > 0 {
		c.Status, c.Reason = v1.ConditionFalse, ReasonContainersNotReady
		c.Message = fmt.Sprintf("containers with unready status: %s", unready)
	}
	return c
}

// ready returns the condition Ready: the containers are ready "and all conditions specified in readinessGates are True".
func (d *derivation) ready(containers v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var open []string
	for _, gate := range d.Pod.Spec.ReadinessGates {
		switch cond := condition(d.Pod.Status.Conditions, gate.ConditionType); {
		case cond == nil:
			open = append(open, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case cond.Status != v1.ConditionTrue:
			open = append(open, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, cond.Status))
		}
	}
	if len(open) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, ReasonReadinessGatesNotReady, strings.Join(open, ", ")
	}
	return c
}

// restartingAll returns the condition about a restart of all containers, for pods that have a RestartAllContainers rule.
func (d *derivation) restartingAll(phase v1.PodPhase) (v1.PodCondition, bool) {
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	if !restartsAll(&d.Pod.Spec) {
		return c, false
	}
	switch {
	case phase == v1.PodSucceeded:
		c.Reason = ReasonPodCompleted
	case phase == v1.PodFailed:
		c.Reason = ReasonPodFailed
	case d.Memory.RestartingAll:
		c.Status, c.Reason = v1.ConditionTrue, ReasonRestartAllStarted
		c.Message = "a container ended with a rule that restarts all containers"
	}
	return c, true
}

// resizing returns the conditions about resizes: "PodResizePending: the node cannot grant the request now (Deferred) or never
// (Infeasible); PodResizeInProgress: it has, and the change is being made". A pod that has ended has neither.
func (d *derivation) resizing(phase v1.PodPhase) []v1.PodCondition {
	if phase == v1.PodSucceeded || phase == v1.PodFailed {
		return nil
	}
	var out []v1.PodCondition
	r := &d.Memory.Resize
	if r.Pending != "" {
		out = append(out, v1.PodCondition{
			Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: r.Pending, Message: r.PendingMessage,
			ObservedGeneration: r.PendingGeneration, LastTransitionTime: d.stamp(r.PendingSince),
		})
	}
	if r.InProgress {
		c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue,
			ObservedGeneration: r.Generation, LastTransitionTime: d.stamp(r.Since)}
		if r.Error != "" {
			c.Reason, c.Message = v1.PodReasonError, r.Error
		}
		out = append(out, c)
	}
	return out
}

// disrupted returns the condition DisruptionTarget of a pod that the node ended for reasons of the node, for example to free memory. The
// status has the condition from the time when the pod has ended. A pod that exceeded its own limits does not get it, because a Job whose
// failure policy ignores disruptions would run the pod again and again.
func (d *derivation) disrupted() (v1.PodCondition, bool) {
	if stop := d.Memory.Stop; stop != nil && stop.Disruption != "" && d.Plan.Ended {
		return v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
			Reason: v1.PodReasonTerminationByKubelet, Message: stop.Disruption,
		}, true
	}
	return v1.PodCondition{}, false
}
