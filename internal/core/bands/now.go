package bands

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

// Now returns the band of a pod (pulling, ready, failing and so on) after a decision. in is the input of the decision, plan its result.
func Now(in *decide.Input, plan *decide.Plan) timeline.Band {
	switch plan.Phase {
	case decide.PhaseStopping:
		return timeline.BandEnding
	case decide.PhaseStopped, decide.PhaseClearing, decide.PhaseGone:
		return end(in)
	case decide.PhaseActive:
	}
	if in.Pod == nil {
		return timeline.BandEnding
	}
	if in.Memory.Finished || plan.Finished {
		return end(in)
	}
	if running, ready := main(in); running {
		if ready {
			return timeline.BandReady
		}
		return timeline.BandRunning
	}
	return incomplete(in, plan)
}

// incomplete returns the band of a pod in which at least one container that should run does not run.
func incomplete(in *decide.Input, plan *decide.Plan) timeline.Band {
	does := func(ops ...pod.Op) bool {
		wanted := func(a pod.Action) bool { return slices.Contains(ops, a.Op) }
		return slices.ContainsFunc(in.InFlight, wanted) || slices.ContainsFunc(plan.Do, wanted)
	}
	switch {
	case does(pod.OpPullImage):
		return timeline.BandPulling
	case does(pod.OpRunSandbox, pod.OpStartContainer, pod.OpPostStart, pod.OpSetUp):
		return timeline.BandStarting
	case backsOff(in):
		return timeline.BandFailing
	}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		if inst := in.Observed.Newest(c.Name); inst != nil && inst.State == pod.StateRunning && !pod.IsSidecar(c) {
			return timeline.BandStarting
		}
	}
	return timeline.BandWaiting
}

// main reports whether all main containers run, and whether all of them are ready. It skips containers that have completed; if all
// have completed, running is false.
func main(in *decide.Input) (running, ready bool) {
	ready = true
	any := false
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		inst := in.Observed.Newest(c.Name)
		switch {
		case inst != nil && inst.State == pod.StateRunning:
			any = true
			ready = ready && isReady(in, c, inst)
		case inst != nil && inst.State == pod.StateExited && completed(in.Pod, c, inst):
		default:
			return false, false
		}
	}
	return any, ready
}

// completed reports whether a container has ended with success and does not start again.
func completed(p *v1.Pod, c *v1.Container, inst *pod.Container) bool {
	policy := string(p.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	}
	return inst.ExitCode == 0 && (policy == string(v1.RestartPolicyNever) || policy == string(v1.RestartPolicyOnFailure))
}

// isReady reports whether a running container is ready. While the container has no probe result, it is also ready if the pod's API
// status shows this instance as ready.
func isReady(in *decide.Input, c *v1.Container, inst *pod.Container) bool {
	said := in.Probed.Of(inst)
	if said.ID == "" {
		if old := pod.StatusOf(&in.Pod.Status, c.Name); old != nil && old.Ready && old.ContainerID != "" && isInstance(old.ContainerID, inst.ID) {
			return true
		}
	}
	if !decide.Started(c, in.Memory.Container(c.Name), said, inst) {
		return false
	}
	return c.ReadinessProbe == nil || said.Ready
}

// isInstance reports whether statusID, a container ID from a pod's status in the form RUNTIME://ID, refers to the container id.
func isInstance(statusID, id string) bool {
	return len(statusID) > len(id) && statusID[len(statusID)-len(id):] == id
}

// backsOff reports whether the pod waits for the next try of something that failed.
func backsOff(in *decide.Input) bool {
	later := func(t time.Time) bool { return t.After(in.Now) }
	if slices.ContainsFunc(in.Memory.Retry, func(r decide.Retry) bool { return later(r.Until) }) {
		return true
	}
	return slices.ContainsFunc(in.Memory.Containers, func(c decide.ContainerMemory) bool {
		return later(c.CrashUntil) || later(c.PullUntil) || later(c.StartUntil)
	})
}

// end returns the band of a pod of which nothing runs. The band is failed if the node itself ended the pod, or if the pod has not been
// deleted and a main container does not exist or exited with another code than 0.
func end(in *decide.Input) timeline.Band {
	if in.Memory.Stop != nil {
		return timeline.BandFailed
	}
	if in.Pod == nil || in.Pod.DeletionTimestamp != nil {
		return timeline.BandEnded
	}
	for i := range in.Pod.Spec.Containers {
		if inst := in.Observed.Newest(in.Pod.Spec.Containers[i].Name); inst == nil || inst.ExitCode != 0 {
			return timeline.BandFailed
		}
	}
	return timeline.BandEnded
}
