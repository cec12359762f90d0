package podstatus

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// tally counts the containers by the states on which the phase depends.
type tally struct {
	initPending, initFailed     int // regular init containers; initFailed counts those that do not start again
	sidecarPending              int
	running, waiting            int // sidecars and main containers
	stopped, succeeded, forGood int // main containers; forGood counts the stopped ones that do not start again
	returning                   int // main containers that have ended and wait to be started again
}

// phase derives phase, reason and message ("The phase of a Pod is a simple, high-level summary of where the Pod is
// in its lifecycle").
func (d *derivation) phase(s *v1.PodStatus) {
	was := d.Old.Phase
	for _, p := range []v1.PodPhase{d.Old.Phase, d.Pod.Status.Phase} {
		if terminal(p) { // a terminal phase is never left
			s.Phase, s.Reason, s.Message = p, d.Old.Reason, d.Old.Message
			if s.Reason == "" && s.Message == "" {
				s.Reason, s.Message = d.Pod.Status.Reason, d.Pod.Status.Message
			}
			d.outcome = p
			return
		}
	}
	t := d.tally(s)
	s.Phase = d.summary(&t)
	d.outcome = s.Phase
	if t.initFailed == 0 && t.returning > 0 && terminal(s.Phase) {
		d.outcome = v1.PodRunning
	}
	switch {
	case d.Plan.Ended && d.Memory.Stop != nil:
		s.Phase, s.Reason, s.Message = v1.PodFailed, d.Memory.Stop.Reason, d.Memory.Stop.Message
		d.outcome = s.Phase
		return
	case d.Plan.Ended && !terminal(s.Phase) && !pod.IsStatic(d.Pod):
		s.Phase = v1.PodFailed // the pod ended and did not succeed
		d.outcome = s.Phase
	case !d.Plan.Ended && terminal(s.Phase):
		// The status shows a terminal phase only when the pod uses no more resources of the node, because controllers act on the phase: a
		// Job, for example, then creates its next pod.
		s.Phase = v1.PodRunning
		if was == v1.PodPending && !d.anyMainMade() {
			s.Phase = was
		}
	}
	if s.Phase == was {
		s.Reason, s.Message = d.Old.Reason, d.Old.Message
	}
}

func terminal(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// summary returns the phase that follows from the containers alone.
func (d *derivation) summary(t *tally) v1.PodPhase {
	switch {
	case t.initFailed > 0:
		return v1.PodFailed
	case t.initPending > 0, t.sidecarPending > 0 && !d.mainInSandbox(), t.waiting > 0:
		return v1.PodPending
	case t.running > 0:
		return v1.PodRunning
	case t.stopped > 0:
		ends := d.Plan.Ended && !pod.IsStatic(d.Pod)
		switch {
		case !ends && t.stopped != t.forGood:
			return v1.PodRunning // some containers will be restarted
		case t.stopped == t.succeeded:
			return v1.PodSucceeded
		}
		return v1.PodFailed
	}
	return v1.PodPending
}

// mainInSandbox reports whether a main container was created in the newest sandbox.
func (d *derivation) mainInSandbox() bool {
	sb := d.Observed.NewestSandbox()
	if sb == nil {
		return false
	}
	for i := range d.Pod.Spec.Containers {
		if c := d.Observed.Newest(d.Pod.Spec.Containers[i].Name); c != nil && c.SandboxID == sb.ID {
			return true
		}
	}
	return false
}

func (d *derivation) tally(s *v1.PodStatus) tally {
	var t tally
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		st := find(s.InitContainerStatuses, c.Name)
		if pod.IsSidecar(c) {
			t.sidecar(st)
		} else {
			t.init(&d.Pod.Spec, c, st)
		}
	}
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		t.main(&d.Pod.Spec, c, find(s.ContainerStatuses, c.Name))
	}
	return t
}

// ended returns the terminated state of a container or, if the container waits to start again, the terminated state of its last attempt. It
// returns nil if the container runs or has never ended.
func ended(st *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if st.State.Running != nil {
		return nil
	}
	if st.State.Terminated != nil {
		return st.State.Terminated
	}
	return st.LastTerminationState.Terminated
}

// neverBegan reports whether a status shows as terminated a container that never ran, because its pod ended before the container could
// start.
func neverBegan(st *v1.ContainerStatus) bool {
	end := st.State.Terminated
	return end != nil && end.Reason == ReasonStatusUnknown && end.ContainerID == "" && st.ContainerID == ""
}

func again(spec *v1.PodSpec, c *v1.Container, end *v1.ContainerStateTerminated) bool {
	return decide.MayRestart(spec, c, end.ExitCode) || end.Reason == ReasonRestartingContainers
}

func (t *tally) init(spec *v1.PodSpec, c *v1.Container, st *v1.ContainerStatus) {
	end := ended(st)
	switch {
	case end == nil, neverBegan(st):
		t.initPending++
	case end.ExitCode != 0 && !again(spec, c, end):
		t.initFailed++
	case end.ExitCode != 0 && st.State.Waiting != nil:
		t.initPending++
	}
}

func (t *tally) sidecar(st *v1.ContainerStatus) {
	switch {
	case st.State.Running != nil:
		t.running++
		if st.Started == nil || !*st.Started {
			t.sidecarPending++
		}
	case ended(st) == nil:
		t.waiting++
		t.sidecarPending++
	}
}

func (t *tally) main(spec *v1.PodSpec, c *v1.Container, st *v1.ContainerStatus) {
	end := ended(st)
	switch {
	case st.State.Running != nil:
		t.running++
	case end == nil:
		t.waiting++
	default:
		t.stopped++
		if st.State.Waiting != nil {
			t.returning++
		}
		if end.ExitCode == 0 && st.State.Terminated != nil {
			t.succeeded++
		}
		if !again(spec, c, end) {
			t.forGood++
		}
	}
}
