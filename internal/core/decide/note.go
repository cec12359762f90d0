package decide

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Note stores the outcome of an action in memory, and reports whether anything that a checkpoint keeps has changed. p may be nil.
func Note(m *Memory, p *v1.Pod, o pod.Outcome, pol *Policy) (kept bool) {
	switch o.Action.Op {
	case pod.OpSetUp:
		done := o.Err == nil && !o.Unknown
		if done { // otherwise what was set up before remains
			m.SetUp, m.Outdated = true, false
		}
		m.TornDown = false
		m.noteRetry(o, pol, done)
		// A set-up makes the cgroup before the volumes, so a failed set-up may have made the cgroup. The outcome does not show
		// whether it did.
		kept = done && m.noteGroup(o.Action.Size)
	case pod.OpTearDown:
		m.TornDown = o.Err == nil
		if m.TornDown {
			m.SetUp, m.Outdated, m.GroupSized = false, false, false
		}
		m.noteRetry(o, pol, m.TornDown)
	case pod.OpForget:
		m.Forgotten = o.Err == nil
		m.noteRetry(o, pol, m.Forgotten)
	case pod.OpRunSandbox:
		m.noteSandbox(o, pol)
	case pod.OpStopSandbox:
		if o.Err == nil && !slices.Contains(m.StoppedSandboxes, o.Action.ID) {
			m.StoppedSandboxes = append(m.StoppedSandboxes, o.Action.ID)
		}
		// The wait is set after a success too, so that a sandbox which stays ready is not stopped again at once.
		m.noteRetry(o, pol, false)
	case pod.OpRemoveContainer, pod.OpRemoveSandbox:
		if o.Err == nil {
			m.StoppedSandboxes = slices.DeleteFunc(m.StoppedSandboxes, func(id string) bool { return id == o.Action.ID })
			m.Ends.removed(o.Action.ID)
		}
		m.noteRetry(o, pol, false)
	case pod.OpPullImage:
		cm := m.Ensure(o.Action.Container)
		cm.stand(p)
		cm.notePull(p, o, pol)
	case pod.OpStartContainer:
		cm := m.Ensure(o.Action.Container)
		cm.stand(p)
		cm.noteStart(o, pol)
		if o.Err == nil && !o.Unknown { // a start that succeeded shows that earlier instances have ended
			m.Ends.replaced(o.Action.Container)
		}
		if o.ID != "" && o.Action.ID == "" { // the action created the container, so it also gave the container its size
			kept = cm.noteSize(o.ID, o.Action.Size) || cm.Kind != pod.KindMain
		}
		if p != nil && pod.IsStatic(p) && cm.AttemptKnown && cm.Attempts <= cm.HighestAttempt {
			cm.Attempts, kept = cm.HighestAttempt+1, true
		}
	case pod.OpPostStart:
		kept = m.Ensure(o.Action.Container).notePostStart(o)
	case pod.OpPreStop:
		m.Ensure(o.Action.Container).PreStoppedID, kept = o.Action.ID, true
	case pod.OpStopContainer:
		m.Ensure(o.Action.Container).noteStop(o, pol)
	case pod.OpResize:
		kept = m.noteResize(p, o, pol)
	case pod.OpNone:
	}
	if o.Action.Op.TouchesRuntime() && o.Ended.After(m.LastOutcome) {
		m.LastOutcome = o.Ended
	}
	return kept
}

// noteRetry sets the wait before an action of the same kind may act on the same object again. After a success it drops the wait.
func (m *Memory) noteRetry(o pod.Outcome, pol *Policy, ok bool) {
	// A wait that ended long ago is dropped, because its object is gone.
	m.Retry = slices.DeleteFunc(m.Retry, func(r Retry) bool {
		same := r.Op == o.Action.Op && r.ID == o.Action.ID
		return (same && ok) || (!same && o.Ended.Sub(r.Until) > pol.RetryMax)
	})
	if ok {
		return
	}
	for i := range m.Retry {
		if r := &m.Retry[i]; r.Op == o.Action.Op && r.ID == o.Action.ID {
			r.again(o, next(r.Delay, pol.RetryInitial, pol.RetryMax))
			return
		}
	}
	m.Retry = append(m.Retry, Retry{Op: o.Action.Op, ID: o.Action.ID})
	m.Retry[len(m.Retry)-1].again(o, pol.RetryInitial)
}

func (r *Retry) again(o pod.Outcome, delay time.Duration) {
	r.Delay, r.Until, r.Reason, r.Message, r.Lack = delay, o.Ended.Add(delay), o.Reason, o.Message, o.Lack
	if r.Message == "" && o.Err != nil {
		r.Message = o.Err.Error()
	}
}

// noteSandbox notes the outcome of a RunPodSandbox. A success sets a wait too: if sandboxes die as soon as they run, there is a
// pause before each new one. The wait is dropped once a sandbox has lived longer than Policy.RetryMax.
func (m *Memory) noteSandbox(o pod.Outcome, pol *Policy) {
	if o.Err == nil || o.Unknown || o.ID != "" {
		m.SandboxAttempt, m.SandboxAttemptKnown = max(m.SandboxAttempt, o.Action.Attempt), true
	}
	m.Retry = slices.DeleteFunc(m.Retry, func(r Retry) bool {
		return r.Op == pod.OpRunSandbox && o.Began.Sub(r.Until) > pol.RetryMax
	})
	m.noteRetry(o, pol, false)
}

// Meet stores in memory, for each running container, which list of the spec has the container, and its index in that list.
func Meet(m *Memory, p *v1.Pod, obs *pod.Observed) {
	meet := func(name string) {
		if inst := obs.Newest(name); inst != nil && inst.State == pod.StateRunning {
			m.Ensure(name).stand(p)
		}
	}
	for i := range p.Spec.InitContainers {
		meet(p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		meet(p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		meet(p.Spec.EphemeralContainers[i].Name)
	}
}

// stand stores in which list of the spec a container is, and its index there.
func (cm *ContainerMemory) stand(p *v1.Pod) {
	if kind, place, ok := pod.KindOf(p, cm.Name); ok {
		cm.Kind, cm.Place = kind, uint16(min(place, math.MaxUint16))
	}
}

func (cm *ContainerMemory) notePull(p *v1.Pod, o pod.Outcome, pol *Policy) {
	if o.Canceled {
		return
	}
	image := ""
	if c := pod.SpecOf(p, cm.Name); c != nil {
		image = c.Image
	}
	if cm.PulledImage != image {
		cm.PullDelay = 0
	}
	cm.PulledImage = image
	if o.Err == nil {
		cm.Pulled, cm.ImageRef = true, o.ID
		cm.PullDelay, cm.PullUntil, cm.PullFailed = 0, time.Time{}, ""
		if PullReason(cm.WaitingReason) {
			cm.WaitingReason, cm.WaitingMessage = "", ""
		}
		return
	}
	cm.Pulled = false
	if cm.PullFailed = o.ID; o.ID == "" {
		cm.PullFailed = image
	}
	cm.PullDelay = next(cm.PullDelay, pol.PullBackOffInitial, pol.PullBackOffMax)
	cm.PullUntil = o.Ended.Add(cm.PullDelay)
	cm.waiting(o, "ErrImagePull")
}

// PullReason reports whether a waiting reason is about the image.
func PullReason(reason string) bool {
	switch reason {
	case "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed":
		return true
	}
	return false
}

// PullBacksOff reports whether a container with this waiting reason is shown as ImagePullBackOff while it waits for the next pull.
func PullBacksOff(reason string) bool {
	return reason == "ErrImagePull" || reason == "RegistryUnavailable" || reason == "SignatureValidationFailed"
}

func (cm *ContainerMemory) waiting(o pod.Outcome, fallback string) {
	cm.WaitingReason, cm.WaitingMessage = o.Reason, o.Message
	if cm.WaitingReason == "" {
		cm.WaitingReason = fallback
	}
	if cm.WaitingMessage == "" && o.Err != nil {
		cm.WaitingMessage = o.Err.Error()
	}
}

func (cm *ContainerMemory) noteStart(o pod.Outcome, pol *Policy) {
	if o.Err == nil || o.Unknown || o.ID != "" || o.Action.ID != "" {
		cm.HighestAttempt, cm.AttemptKnown = max(cm.HighestAttempt, o.Action.Attempt), true
	}
	cm.Pulled = false // the next start ensures its image again, as the pull policy says
	if o.Err == nil && !o.Unknown {
		cm.WaitingReason, cm.WaitingMessage = "", ""
		cm.StartDelay, cm.StartUntil, cm.StartFailedID = 0, time.Time{}, ""
		return
	}
	cm.StartDelay = next(cm.StartDelay, pol.RetryInitial, pol.RetryMax)
	cm.StartUntil = o.Ended.Add(cm.StartDelay)
	fallback := "CreateContainerError"
	if !o.Unknown {
		if id := o.ID; id != "" {
			cm.StartFailedID, fallback = id, "RunContainerError"
		} else if o.Action.ID != "" {
			cm.StartFailedID, fallback = o.Action.ID, "RunContainerError"
		}
	}
	cm.waiting(o, fallback)
}

func (cm *ContainerMemory) notePostStart(o pod.Outcome) (kept bool) {
	if o.Canceled {
		return false
	}
	cm.PostStartedID, cm.PostStartFailed = o.Action.ID, o.Err != nil
	if o.Err != nil {
		cm.waiting(o, "PostStartHookError")
	}
	return true
}

func (cm *ContainerMemory) noteStop(o pod.Outcome, pol *Policy) {
	id := o.Action.ID
	if cm.StopID != id {
		cm.StopDelay, cm.Stopped = 0, false
	}
	cm.StopID = id
	cm.Stopped = cm.Stopped || (o.Err == nil && !o.Unknown)
	cm.StopDelay = next(cm.StopDelay, pol.RetryInitial, pol.RetryMax)
	cm.StopUntil = o.Ended.Add(cm.StopDelay)
}

// noteResize notes the outcome of a resize. A size that was applied is remembered; a failure is retried after a back-off, and its
// message goes into the pod's status. It reports whether the checkpoint has to be written.
func (m *Memory) noteResize(p *v1.Pod, o pod.Outcome, pol *Policy) (kept bool) {
	ok := o.Err == nil && !o.Unknown
	m.noteRetry(o, pol, ok)
	switch {
	case ok && o.Action.Container == "":
		return m.noteGroup(o.Action.Size)
	case ok:
		cm := m.Ensure(o.Action.Container)
		cm.forgive()
		return cm.noteSize(o.Action.ID, o.Action.Size)
	case o.Canceled:
		return false
	}
	return m.Resize.fail(p, o)
}

func (m *Memory) noteGroup(size pod.Size) bool {
	changed := !m.GroupSized || m.GroupSize != size
	m.GroupSize, m.GroupSized = size, true
	return changed && size != (pod.Size{})
}

func (cm *ContainerMemory) noteSize(id string, size pod.Size) bool {
	cm.SizedID, cm.Size, cm.SizeGiven = id, size, true
	return size != (pod.Size{})
}

// Refresh makes the next turn set volumes up again, because a token has to be renewed or an object changed. It also ends the
// back-off after a set-up, a start or a tear-down that failed, because the failure may have been due to a missing object or to a missing
// driver of a volume.
func (m *Memory) Refresh() {
	m.Outdated = m.SetUp
	m.Retry = slices.DeleteFunc(m.Retry, func(r Retry) bool { return r.Op == pod.OpSetUp || r.Op == pod.OpTearDown })
	for i := range m.Containers {
		m.Containers[i].StartUntil = time.Time{}
	}
}
