package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// containers decides about all containers of the pod: ephemeral ones at any time, init containers in order, then the main ones.
func (t *turn) containers() {
	t.ephemeral()
	if t.inits() {
		t.mains()
	}
}

// inits decides about the init containers, and reports whether the main containers may run ("each init container must complete
// successfully before the next one starts"; a sidecar must have started).
func (t *turn) inits() bool {
	initialized := t.initialized()
	for i := range t.in.Pod.Spec.InitContainers {
		c := &t.in.Pod.Spec.InitContainers[i]
		inst := t.instance(c.Name)
		if pod.IsSidecar(c) {
			s := t.drive(c, inst, WhyInit, false)
			if !initialized && (s != stepUp || !t.started(c, inst)) {
				t.wait(WhySidecarFirst)
				t.laterSidecars(i)
				return false
			}
			continue
		}
		if initialized || t.laterInit(i) {
			continue
		}
		if inst != nil && inst.State == pod.StateExited && inst.ExitCode == 0 && !t.busyName(pod.OpStartContainer, c.Name) {
			t.step(ruleContainer, c.Name)
			continue // the init container has completed, and does not run again under any restart policy
		}
		if inst != nil && inst.State == pod.StateRunning { // nothing to do: it has no probes and no hooks, and keeps its image
			t.wait(WhyInitFirst)
			t.step(ruleContainer, c.Name)
			return false
		}
		// If the init container has failed for good, the containers after it do not start either. In a later turn, (*turn).finished finds
		// that the pod has failed.
		t.drive(c, inst, WhyInit, false)
		return false
	}
	return true
}

// laterSidecars decides about the running sidecars after the init container i, which is not up (any more). No other sidecar starts before it is, but
// what has to be done to one that runs does not wait, for instance its end after a failed probe: the end of the earlier one may take its whole grace
// period.
func (t *turn) laterSidecars(i int) {
	for j := i + 1; j < len(t.in.Pod.Spec.InitContainers); j++ {
		c := &t.in.Pod.Spec.InitContainers[j]
		if inst := t.instance(c.Name); pod.IsSidecar(c) && inst != nil && t.alive(inst) {
			t.drive(c, inst, WhyInit, true)
		}
	}
}

// instance returns the newest attempt of an init container in the present sandbox, because all init containers run again in a new
// sandbox.
func (t *turn) instance(name string) *pod.Container {
	inst := t.in.Observed.Newest(name)
	if inst == nil || !t.inSandbox(inst) {
		return nil
	}
	return inst
}

// initialized reports whether a main container was created in this sandbox, which shows that all init containers have completed
// in it.
func (t *turn) initialized() bool {
	for i := range t.in.Pod.Spec.Containers {
		inst := t.in.Observed.Newest(t.in.Pod.Spec.Containers[i].Name)
		if inst != nil && t.inSandbox(inst) {
			return true
		}
	}
	return false
}

// laterInit reports whether an init container after i was created in this sandbox. This shows that i has completed, even if the
// runtime has removed it.
func (t *turn) laterInit(i int) bool {
	for _, c := range t.in.Pod.Spec.InitContainers[i+1:] {
		if t.instance(c.Name) != nil {
			return true
		}
	}
	return false
}

// started reports whether a running sidecar counts as started, so that the next container may begin: its startup probe has
// succeeded, or it has none.
func (t *turn) started(c *v1.Container, inst *pod.Container) bool {
	return Started(c, t.memory(c.Name), t.in.Probed.Of(inst), inst) || t.wasStarted(c.Name, inst)
}

// wasStarted reports whether the API status shows this container instance as started. After a restart of the agent, only the API status
// shows this.
func (t *turn) wasStarted(name string, inst *pod.Container) bool {
	st := pod.StatusOf(&t.in.Pod.Status, name)
	return st != nil && st.Started != nil && *st.Started && SameContainer(st.ContainerID, inst.ID)
}

// SameContainer reports whether an API container ID ("containerd://abc") means this container of the runtime.
func SameContainer(apiID, id string) bool {
	return id != "" && pod.BareID(apiID) == id
}

// Started reports whether a running container counts as started: its postStart hook is done and its startup probe, where it has one, has
// succeeded. said contains the probe results of this instance.
func Started(c *v1.Container, cm *ContainerMemory, said Probed, inst *pod.Container) bool {
	if c.StartupProbe != nil {
		return said.Started
	}
	return PostStartDone(c, cm, said, inst)
}

// PostStartDone reports whether a container's postStart hook has run, or it has none. Probes begin after the hook. cm may be nil.
func PostStartDone(c *v1.Container, cm *ContainerMemory, said Probed, inst *pod.Container) bool {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return true
	}
	// If the API status shows the container as started, its hook has run, even if the checkpoint is lost.
	return said.Started || cm != nil && cm.PostStartedID == inst.ID && !cm.PostStartFailed
}
