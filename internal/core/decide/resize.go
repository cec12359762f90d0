package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Resize is a change of a pod's resources that is not complete.
type Resize struct {
	// Pending is the reason why the node has not accepted the resources in the spec: Deferred or Infeasible; empty: the node has
	// accepted them. PendingGeneration is the generation of the pod for which the node decided this, and PendingSince is when the node
	// first gave this reason.
	Pending           string
	PendingMessage    string
	PendingGeneration int64
	PendingSince      time.Time
	// InProgress is set while the node has accepted new resources and not all containers have them yet. Error is the error of the last
	// attempt to apply them. Generation is the generation of the pod whose resources were accepted. Since is when they were accepted, or
	// when the attempts began to fail.
	InProgress bool
	Error      string
	Generation int64
	Since      time.Time
}

// Accept begins a resize that the node has accepted.
func (r *Resize) Accept(generation int64, now time.Time) {
	*r = Resize{InProgress: true, Generation: generation, Since: now}
}

// Defer stores why the node has not accepted the resources in a generation of the spec. It reports whether the reason, the message or the
// generation has changed.
func (r *Resize) Defer(reason, message string, generation int64, now time.Time) (changed bool) {
	if r.Pending == reason && r.PendingMessage == message && r.PendingGeneration == generation {
		return false
	}
	if r.Pending != reason {
		r.PendingSince = now
	}
	r.Pending, r.PendingMessage, r.PendingGeneration = reason, message, generation
	return true
}

// Withdraw ends a pending resize, because the spec no longer asks for it.
func (r *Resize) Withdraw() { r.Pending, r.PendingMessage = "", "" }

// done records that the resize in progress is complete, and reports whether there was one.
func (r *Resize) done() bool {
	was := r.InProgress
	r.InProgress, r.Error = false, ""
	return was
}

// fail stores that the resize in progress failed, and reports whether the error message is new. If a lost checkpoint made the agent forget
// the resize, the first failure marks it as in progress again.
func (r *Resize) fail(p *v1.Pod, o pod.Outcome) (changed bool) {
	if !r.InProgress && p != nil {
		r.InProgress, r.Generation, r.Since = true, p.Generation, o.Ended
	}
	message := o.Message
	if message == "" && o.Err != nil {
		message = o.Err.Error()
	}
	if r.Error == "" {
		r.Since = o.Ended
	}
	changed = r.Error != message
	r.Error = message
	return changed
}

// size returns the resources that the container name should have. For the name "" it returns those of the pod's cgroup.
func (t *turn) size(name string) pod.Size {
	for i := range t.in.Sizes {
		if t.in.Sizes[i].Name == name {
			return t.in.Sizes[i].Size
		}
	}
	return pod.Size{}
}

// groupNow returns the size that the pod's cgroup may have now. While a container has not exited, the cgroup does not shrink.
func (t *turn) groupNow() pod.Size {
	want := t.size("")
	if t.in.Memory.GroupSized {
		for i := range t.in.Observed.Containers {
			if t.in.Observed.Containers[i].State != pod.StateExited {
				return want.Grown(t.in.Memory.GroupSize)
			}
		}
	}
	return want
}

// groupMustGrow reports whether the pod's cgroup has to grow before the pod's containers may grow.
func (t *turn) groupMustGrow() bool {
	m := t.in.Memory
	return m.GroupSized && m.GroupSize != m.GroupSize.Grown(t.size(""))
}

// resize gives the running containers and the pod's cgroup the resources that the node has accepted. The cgroup grows first;
// then the containers follow one after another, those that shrink before those that grow; the cgroup shrinks last. ("Resize
// CPU and Memory Resources assigned to Containers") A container that does not run gets its size when it starts.
func (t *turn) resize() {
	if len(t.in.Sizes) == 0 && !t.in.Memory.Resize.InProgress && t.in.Memory.GroupSize == (pod.Size{}) {
		return
	}
	if t.groupMustGrow() {
		t.resizeGroup(t.in.Memory.GroupSize.Grown(t.size("")), WhyGroupGrows)
		return
	}
	spec, open := t.resizable()
	if spec != nil {
		inst := t.in.Observed.Newest(spec.Name)
		if !t.busy(pod.OpResize) && t.due(pod.OpResize, inst.ID) {
			t.begin(pod.Action{Op: pod.OpResize, Container: spec.Name, ID: inst.ID, Size: t.size(spec.Name), Why: WhyResize})
		}
		return
	}
	if open || t.stale || t.busy(pod.OpSetUp) || t.busy(pod.OpStartContainer) || t.busy(pod.OpResize) || t.begins() {
		return // a container, which may be ephemeral, is starting or must still restart for the resize
	}
	m := t.in.Memory
	if m.GroupSized && m.GroupSize != t.size("") {
		t.resizeGroup(t.size(""), WhyGroupShrinks)
		return
	}
	t.plan.Resized = m.Resize.InProgress && (m.GroupSized || m.SetUp)
}

// begins reports whether this turn begins a set-up or a start, which must not run while the cgroup changes.
func (t *turn) begins() bool {
	for i := range t.plan.Do {
		if op := t.plan.Do[i].Op; op == pod.OpSetUp || op == pod.OpStartContainer {
			return true
		}
	}
	return false
}

func (t *turn) resizeGroup(size pod.Size, why pod.Why) {
	if !t.busy(pod.OpResize) && !t.busy(pod.OpSetUp) && t.due(pod.OpResize, "") {
		t.begin(pod.Action{Op: pod.OpResize, Size: size, Why: why})
	}
}

// resizable returns the next running container to resize; one that shrinks comes before one that grows. open reports that another
// container has yet to get its size, because it restarts for the resize or is starting.
func (t *turn) resizable() (next *v1.Container, open bool) {
	nextShrinks := false
	for _, list := range [...][]v1.Container{t.in.Pod.Spec.InitContainers, t.in.Pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			inst := t.in.Observed.Newest(c.Name)
			if t.busyName(pod.OpStartContainer, c.Name) || t.restartsChanged(inst) {
				open = true
				continue
			}
			if inst == nil {
				continue
			}
			have, differs := t.differs(c, inst)
			shrinks := have.Shrinks(t.size(c.Name))
			switch {
			case !differs:
			case inst.State == pod.StateCreated: // the runtime can resize only a running container
				open = open || inst.ID != t.memory(c.Name).StartFailedID
			case resizeRestarts(c, have, t.size(c.Name)) || t.stopping(inst.ID):
				open = true
			case next == nil || shrinks && !nextShrinks:
				next, nextShrinks = c, shrinks
			}
		}
	}
	return next, open
}

// restartsChanged reports whether a container was stopped in order to restart with its changed spec.
func (t *turn) restartsChanged(inst *pod.Container) bool {
	if inst == nil || inst.State == pod.StateRunning {
		return false
	}
	cause, replaced := t.memory(inst.Name).replaced(inst.ID)
	return replaced && !crash(cause)
}

// differs returns the size of a container, and whether it differs from the size that the container should have.
//
// If this agent set the size of the container, that size is used, whatever the runtime reports. If an earlier agent set it, the size that
// the runtime reports is used. For resources that the runtime does not report, the size in memory is used, or, without one, the size that
// the container should have. An init container that is not a sidecar never restarts for a resize: validation rejects a resize that would
// need it.
func (t *turn) differs(c *v1.Container, inst *pod.Container) (have pod.Size, differs bool) {
	if inst.State != pod.StateRunning && inst.State != pod.StateCreated || !t.inSandbox(inst) {
		return pod.Size{}, false
	}
	want, cm := t.size(c.Name), t.memory(c.Name)
	switch {
	case cm.SizedID != inst.ID:
		have = want.Shown(inst.Actual, inst.LeastCPULimit)
	case cm.SizeGiven:
		have = cm.Size
	default:
		have = cm.Size.Shown(inst.Actual, inst.LeastCPULimit)
	}
	if have == want || t.isInit(c) && !pod.IsSidecar(c) && resizeRestarts(c, have, want) {
		return pod.Size{}, false
	}
	return have, true
}

func (t *turn) isInit(c *v1.Container) bool {
	for i := range t.in.Pod.Spec.InitContainers {
		if &t.in.Pod.Spec.InitContainers[i] == c {
			return true
		}
	}
	return false
}

// resizeRestarts reports whether a running container has to restart now to get its new resources. It is false until the pod's
// cgroup has grown.
func (t *turn) resizeRestarts(c *v1.Container, inst *pod.Container) bool {
	if t.groupMustGrow() {
		return false
	}
	have, differs := t.differs(c, inst)
	return differs && resizeRestarts(c, have, t.size(c.Name))
}

// resizeRestarts reports whether the resize policy of a changed resource demands a restart: "RestartContainer: Restart the
// container to apply the new resource values". NotRequired is the default.
func resizeRestarts(c *v1.Container, have, want pod.Size) bool {
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy != v1.RestartContainer {
			continue
		}
		switch p.ResourceName {
		case v1.ResourceCPU:
			if have.CPURequest != want.CPURequest || have.CPULimit != want.CPULimit {
				return true
			}
		case v1.ResourceMemory:
			if have.MemoryRequest != want.MemoryRequest || have.MemoryLimit != want.MemoryLimit {
				return true
			}
		}
	}
	return false
}
