package podstatus

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/why"
)

// These are the reasons of container states that Kubernetes defines.
const (
	ReasonContainerCreating    = "ContainerCreating"
	ReasonPodInitializing      = "PodInitializing"
	ReasonCrashLoopBackOff     = "CrashLoopBackOff"
	ReasonImagePullBackOff     = "ImagePullBackOff"
	ReasonCompleted            = "Completed"
	ReasonError                = "Error"
	ReasonStatusUnknown        = decide.ReasonStatusUnknown
	ReasonRestartingContainers = "RestartingAllContainers"
)

// messageNotLocated is the message of a container whose end nobody saw. Users and tools know this text.
const messageNotLocated = "The container could not be located when the pod was terminated"

// messageBytes bounds all termination messages of a pod together (12 KiB).
const messageBytes = 12 << 10

// role says whether a container is a main, an init or an ephemeral container, a distinction on which its status depends.
type role uint8

const (
	roleMain role = iota
	roleInit
	roleEphemeral
)

// subject is one container with all that is known about it.
type subject struct {
	spec *v1.Container
	kind role
	inst *pod.Container      // the newest attempt; nil: the runtime does not know it
	old  *v1.ContainerStatus // status that was last reported; nil: none
	cm   *decide.ContainerMemory
	said decide.Probed // the results of the probes of inst
}

// cameTooLate reports whether an ephemeral container was added after the pod had ended. Such a container will never start, so it
// has no status.
func (d *derivation) cameTooLate(name string) bool {
	return d.Plan.Ended && d.Observed.Newest(name) == nil && find(d.Old.EphemeralContainerStatuses, name) == nil
}

// containers derives the three lists of container statuses. Init containers are in the order of the spec, the others are sorted by name.
func (d *derivation) containers(s *v1.PodStatus) {
	spec := &d.Pod.Spec
	for i := range spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses,
			d.container(&spec.InitContainers[i], roleInit, d.Old.InitContainerStatuses))
	}
	for i := range spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses,
			d.container(&spec.Containers[i], roleMain, d.Old.ContainerStatuses))
	}
	for i := range spec.EphemeralContainers {
		c := (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
		if d.cameTooLate(c.Name) {
			continue
		}
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses,
			d.container(c, roleEphemeral, d.Old.EphemeralContainerStatuses))
	}
	byName := func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }
	inorder.Sort(s.ContainerStatuses, byName)
	inorder.Sort(s.EphemeralContainerStatuses, byName)
	if d.Plan.Ended {
		d.endContainers(s)
	}
	d.keepFinal(s)
	d.boundMessages(s)
}

// keepFinal keeps the reported end of a container whose restart policy does not let it start again, because the API server would
// refuse the whole status if it showed another state. If such an init container runs once more in a new sandbox, the status therefore
// shows its old end until it has ended again.
func (d *derivation) keepFinal(s *v1.PodStatus) {
	keep := func(specs []v1.Container, list, reported []v1.ContainerStatus) {
		for i := range list {
			st, old := &list[i], find(reported, list[i].Name)
			if st.State.Terminated != nil || old == nil || old.State.Terminated == nil {
				continue
			}
			if c := specOf(specs, st.Name); c == nil || !decide.MayRestart(&d.Pod.Spec, c, old.State.Terminated.ExitCode) {
				*st = *old.DeepCopy()
				st.State = v1.ContainerState{Terminated: st.State.Terminated}
			}
		}
	}
	for _, reported := range []*v1.PodStatus{d.Old, &d.Pod.Status} {
		if !d.Memory.RestartedAll && !restartsAll(&d.Pod.Spec) {
			keep(d.Pod.Spec.InitContainers, s.InitContainerStatuses, reported.InitContainerStatuses)
			keep(d.Pod.Spec.Containers, s.ContainerStatuses, reported.ContainerStatuses)
		}
		keep(nil, s.EphemeralContainerStatuses, reported.EphemeralContainerStatuses)
	}
}

func specOf(specs []v1.Container, name string) *v1.Container {
	for i := range specs {
		if specs[i].Name == name {
			return &specs[i]
		}
	}
	return nil
}

// restartsAll reports whether a container of the pod has a rule that restarts all containers.
func restartsAll(spec *v1.PodSpec) bool {
	has := func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(spec.Containers, has) || slices.ContainsFunc(spec.InitContainers, has)
}

// container derives the status of one container.
func (d *derivation) container(c *v1.Container, kind role, olds []v1.ContainerStatus) v1.ContainerStatus {
	x := subject{
		spec: c, kind: kind, inst: d.Observed.Newest(c.Name), old: find(olds, c.Name), cm: d.Memory.Container(c.Name),
	}
	if x.cm == nil {
		x.cm = &decide.ContainerMemory{}
	}
	if x.inst != nil {
		x.said = d.Probed.Of(x.inst)
	}
	var st v1.ContainerStatus
	switch {
	case x.inst == nil:
		st = d.absent(&x)
	case d.hooked(&x):
		st = d.beforeHook(&x)
	default:
		st = d.present(&x)
	}
	d.waiting(&x, &st)
	if kind != roleEphemeral {
		startedReady(&x, &st)
	}
	return st
}

// present returns the status of a container that exists in the runtime.
func (d *derivation) present(x *subject) v1.ContainerStatus {
	c, inst, old := x.spec, x.inst, x.old
	st := v1.ContainerStatus{
		Name: c.Name, Image: cmp.Or(inst.Image, c.Image), ImageID: inst.ImageRef,
		ContainerID:        d.id(inst),
		RestartCount:       int32(min(inst.Attempt, 1<<31-1)),
		VolumeMounts:       d.mounts(c, old),
		Resources:          c.Resources.DeepCopy(),
		AllocatedResources: c.Resources.Requests.DeepCopy(),
	}
	if old != nil {
		st.RestartCount = max(st.RestartCount, old.RestartCount)
		st.StopSignal, st.User = old.StopSignal, old.User.DeepCopy()
	}
	// The API documents the field: "user represents user identity information initially attached to the first process of the container".
	if u := inst.User; u != nil {
		st.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: u.UID, GID: u.GID, SupplementalGroups: slices.Clone(u.Groups)}}
	}
	st.LastTerminationState = d.lastState(c.Name, inst, old)
	// The status has the signal only if the spec has one, because an API server without the gate ContainerStopSignals refuses the
	// field otherwise.
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil && inst.StopSignal != "" {
		st.StopSignal = new(v1.Signal(inst.StopSignal))
	}
	if inst.State == pod.StateRunning && st.Resources != nil {
		want := crispec.ContainerSize(d.Pod, c)
		overlay(st.Resources, want, want.Shown(inst.Actual, inst.LeastCPULimit))
	}
	switch inst.State {
	case pod.StateCreated:
		st.State.Waiting = d.notYet()
	case pod.StateRunning:
		st.State.Running = &v1.ContainerStateRunning{StartedAt: d.stamp(inst.StartedAt)}
	case pod.StateExited:
		st.State.Terminated = d.terminated(inst)
	case pod.StateUnknown:
		st.State = d.unknown(x)
	}
	return st
}

// unknown returns the state of a container that the runtime lost track of. While the container is being stopped, its state is the
// one that was last reported; after that it is terminated.
func (d *derivation) unknown(x *subject) v1.ContainerState {
	inst, old := x.inst, x.old
	if x.cm.StopID == inst.ID && x.cm.Stopped {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: pod.ExitLost, Reason: ReasonStatusUnknown, ContainerID: d.id(inst), StartedAt: d.stamp(inst.StartedAt),
			Message: "the runtime lost track of the container, which was stopped",
		}}
	}
	if old != nil && old.State.Running != nil && old.ContainerID == d.id(inst) {
		return *old.State.DeepCopy()
	}
	return v1.ContainerState{Waiting: d.notYet()}
}

// terminated returns the terminated state of a container that has ended.
func (d *derivation) terminated(inst *pod.Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode: inst.ExitCode, StartedAt: d.stamp(inst.StartedAt), FinishedAt: d.stamp(inst.FinishedAt), ContainerID: d.id(inst),
	}
	if inst.Said != nil {
		t.Reason, t.Message = inst.Said.Reason, inst.Said.Message
	}
	if t.Reason == "" {
		t.Reason = ReasonCompleted
		if t.ExitCode != 0 {
			t.Reason = ReasonError
		}
	}
	return t
}

// lastState returns the end of the attempt before this one, from the runtime if it still has that attempt, or else from the last
// report.
func (d *derivation) lastState(name string, inst *pod.Container, old *v1.ContainerStatus) v1.ContainerState {
	for i := range d.Observed.Containers {
		c := &d.Observed.Containers[i]
		if c.Name == name && c.ID != inst.ID && c.State == pod.StateExited {
			return v1.ContainerState{Terminated: d.terminated(c)}
		}
	}
	switch {
	case old == nil:
		return v1.ContainerState{}
	case old.ContainerID != d.id(inst) && old.State.Terminated != nil:
		return v1.ContainerState{Terminated: old.State.Terminated.DeepCopy()}
	case old.LastTerminationState.Terminated != nil && old.LastTerminationState.Terminated.ContainerID != d.id(inst):
		return *old.LastTerminationState.DeepCopy()
	}
	return v1.ContainerState{}
}

// absent returns the status of a container that does not exist in the runtime, because it does not exist yet or not any more.
func (d *derivation) absent(x *subject) v1.ContainerStatus {
	c, kind, old := x.spec, x.kind, x.old
	if old != nil && old.State.Terminated != nil && !d.restartsAnew(kind) && (d.Plan.Ended || !decide.NeverMade(d.Old, old)) {
		st := *old.DeepCopy()
		st.State = v1.ContainerState{Terminated: st.State.Terminated}
		return st
	}
	st := v1.ContainerStatus{
		Name: c.Name, Image: c.Image, VolumeMounts: d.mounts(c, old),
		State: v1.ContainerState{Waiting: d.notYet()},
	}
	if old != nil {
		st.RestartCount = old.RestartCount
		st.LastTerminationState = *old.LastTerminationState.DeepCopy()
	}
	switch {
	// During a restart of all containers, the main containers from before the restart may still exist, so they show nothing.
	case kind == roleInit && !pod.IsSidecar(c) && d.anyMainMade() && !d.Memory.RestartingAll:
		st.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason:  ReasonCompleted,
			Message: "Unable to get init container status: the runtime no longer has the container; it must have completed, because the main containers were created after it",
		}}
	case d.Memory.RestartedAll && old != nil && old.State.Waiting == nil && d.restartsAnew(kind):
		d.restartedAll(&st)
	case old != nil && old.ContainerID != "" && d.restartsAnew(kind): // an attempt was removed while the container waited to start again
		st.RestartCount++
	case old != nil && old.State.Running != nil:
		st.LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: ReasonStatusUnknown, ExitCode: pod.ExitLost, ContainerID: old.ContainerID,
			StartedAt: old.State.Running.StartedAt,
			Message:   "the container was running and the runtime does not know it any more",
		}}
		if d.Pod.DeletionTimestamp == nil {
			st.RestartCount++
		}
	case old != nil && old.State.Waiting != nil && d.Plan.Ending && d.Pod.DeletionTimestamp == nil:
		st.State = *old.State.DeepCopy() // the node ends the pod, and people should still see why the container waited
	}
	return st
}

// restartsAnew reports whether all containers of this kind were removed in order to start again.
func (d *derivation) restartsAnew(kind role) bool {
	return d.Memory.RestartedAll && kind != roleEphemeral && !d.Plan.Ended
}

func (d *derivation) restartedAll(st *v1.ContainerStatus) {
	const message = "the container was removed because all containers of the pod are restarted in place"
	st.State.Waiting = &v1.ContainerStateWaiting{Reason: ReasonRestartingContainers, Message: message}
	st.LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: ReasonRestartingContainers, Message: message, ExitCode: pod.ExitLost,
	}}
	st.RestartCount++
}

// anyMainMade reports whether a main container exists in the runtime, which shows that the init containers had completed.
func (d *derivation) anyMainMade() bool {
	for i := range d.Pod.Spec.Containers {
		if d.Observed.Newest(d.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// notYet returns the waiting state of a container that waits only because other steps of the pod's start come first. If such a step fails,
// the message is the first line of the answer of package why. Upstream's kubelet leaves the message empty.
func (d *derivation) notYet() *v1.ContainerStateWaiting {
	w := &v1.ContainerStateWaiting{Reason: ReasonContainerCreating}
	if len(d.Pod.Spec.InitContainers) > 0 {
		w.Reason = ReasonPodInitializing
	}
	if sb, _ := decide.UsableSandbox(d.Pod, d.Observed); sb == nil {
		w.Message = why.StartFailure(d.Memory)
	}
	return w
}

// waiting replaces the state of a container that has to start, or to start again, by a waiting state with the reason. If the container
// has ended, its terminated state becomes the last state.
func (d *derivation) waiting(x *subject, st *v1.ContainerStatus) {
	c, inst := x.spec, x.inst
	if st.State.Running != nil || d.Plan.Ending || d.Pod.DeletionTimestamp != nil || d.hooked(x) {
		return
	}
	final := false // whether the container has ended, and its restart policy does not let it start again
	if st.State.Terminated != nil {
		code := st.State.Terminated.ExitCode
		if x.kind == roleEphemeral || (x.kind == roleInit && code == 0 && !pod.IsSidecar(c)) {
			return
		}
		final = !decide.MayRestart(&d.Pod.Spec, c, code)
		if final && (inst == nil || !decide.StartsAgain(&d.Pod.Spec, c, d.Memory, inst, code)) {
			return
		}
	}
	w := d.why(x)
	if w == nil && final { // the agent ended the container in order to start it again
		w = d.notYet()
	}
	if w == nil {
		return
	}
	if st.State.Terminated != nil {
		st.LastTerminationState = st.State
	}
	st.State = v1.ContainerState{Waiting: w}
}

// why returns a waiting state that says why a container does not run, according to the worker's memory: because of a back-off or a failure.
// It returns nil if the memory has no such reason.
func (d *derivation) why(x *subject) *v1.ContainerStateWaiting {
	c, inst, cm, now := x.spec, x.inst, x.cm, d.Now
	if inst != nil && cm.CrashedID == inst.ID && now.Before(cm.CrashUntil) {
		return &v1.ContainerStateWaiting{
			Reason: ReasonCrashLoopBackOff,
			Message: fmt.Sprintf("back-off %srestarting failed container=%s pod=%s_%s(%s)",
				backOff(inst, cm), c.Name, d.Pod.Name, d.Pod.Namespace, d.Pod.UID),
		}
	}
	if cm.WaitingReason == "" {
		return nil
	}
	if decide.PullBacksOff(cm.WaitingReason) && cm.PulledImage == c.Image && now.Before(cm.PullUntil) &&
		!now.Before(cm.PullUntil.Add(decide.PullErrorShown-cm.PullDelay)) {
		return &v1.ContainerStateWaiting{
			Reason:  ReasonImagePullBackOff,
			Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", cmp.Or(cm.PullFailed, c.Image), cm.WaitingReason, cm.WaitingMessage),
		}
	}
	return &v1.ContainerStateWaiting{Reason: cm.WaitingReason, Message: cm.WaitingMessage}
}

// backOff returns the length of a container's present back-off and a space. It returns "" if the runtime does not say when the container ended,
// or if the clock was set back since, because the length is not known then.
func backOff(inst *pod.Container, cm *decide.ContainerMemory) string {
	if inst.FinishedAt.IsZero() || inst.FinishedAt.After(cm.CrashUntil) {
		return ""
	}
	return cm.CrashUntil.Sub(inst.FinishedAt).String() + " "
}

// startedReady sets the fields started and ready from the results of probes. A container without probes is started when it runs and its
// postStart hook is done, and it is ready when it is started. A regular init container is ready when it has completed.
func startedReady(x *subject, st *v1.ContainerStatus) {
	c, inst, old := x.spec, x.inst, x.old
	started, ready := false, false
	if st.State.Running != nil && inst != nil {
		// Until a probe has a result, the container keeps the values that were last reported.
		same := old != nil && old.ContainerID == st.ContainerID && x.said.ID == ""
		started = decide.Started(c, x.cm, x.said, inst) || (same && old.Started != nil && *old.Started)
		ready = started
		if c.ReadinessProbe != nil {
			ready = started && (x.said.Ready || (same && old.Ready))
		}
	}
	if x.kind == roleInit && !pod.IsSidecar(c) {
		ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
	}
	st.Started, st.Ready = &started, ready
}

// endContainers completes the statuses of a pod of which nothing runs any more. It sets a terminated state for each container that has run
// and whose end is not known. It does the same for containers that never ran although they would have been next: the main containers if
// the pod was initialized, and the init containers up to the last one that ran, or the first one if none ran.
func (d *derivation) endContainers(s *v1.PodStatus) {
	end := func(st *v1.ContainerStatus) {
		if st.State.Terminated != nil {
			return
		}
		if last := st.LastTerminationState.Terminated; last != nil && st.ContainerID == "" {
			st.State = v1.ContainerState{Terminated: last}
			st.LastTerminationState = v1.ContainerState{}
			return
		}
		st.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: ReasonStatusUnknown, ExitCode: pod.ExitLost,
			Message: messageNotLocated,
		}}
	}
	if d.initialized {
		for i := range s.ContainerStatuses {
			end(&s.ContainerStatuses[i])
		}
	}
	lastRun := 0
	for i := range s.InitContainerStatuses {
		if st := &s.InitContainerStatuses[i]; st.State.Waiting == nil || st.LastTerminationState.Terminated != nil {
			lastRun = i
		}
	}
	for i := range min(lastRun+1, len(s.InitContainerStatuses)) {
		end(&s.InitContainerStatuses[i])
	}
}

// mounts lists the volume mounts; the list never changes after it is reported.
func (d *derivation) mounts(c *v1.Container, old *v1.ContainerStatus) []v1.VolumeMountStatus {
	if old != nil && len(old.VolumeMounts) > 0 {
		return slices.Clone(old.VolumeMounts)
	}
	var out []v1.VolumeMountStatus
	for _, m := range c.VolumeMounts {
		st := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if r := m.RecursiveReadOnly; r != nil && (*r == v1.RecursiveReadOnlyEnabled ||
				(*r == v1.RecursiveReadOnlyIfPossible && d.RecursiveReadOnly)) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			st.RecursiveReadOnly = &mode
		}
		out = append(out, st)
	}
	return out
}

func (d *derivation) id(c *pod.Container) string { return d.RuntimeName + "://" + c.ID }

// boundMessages cuts termination messages so that those of all containers together are not longer than messageBytes.
func (d *derivation) boundMessages(s *v1.PodStatus) {
	n := len(s.ContainerStatuses) + len(s.InitContainerStatuses) + len(s.EphemeralContainerStatuses)
	for st := range pod.Statuses(s) {
		for _, t := range [...]*v1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
			if t != nil {
				t.Message = pod.Cut(t.Message, min(pod.TextBytes, messageBytes/n))
			}
		}
	}
}

func find(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
