package decide

import (
	"github.com/wherry-node/wherry/internal/core/pod"
)

// stopping reports whether the stop of a container, or its preStop hook, is in flight.
func (t *turn) stopping(id string) bool {
	return t.busyID(pod.OpStopContainer, id) != nil || t.busyID(pod.OpPreStop, id) != nil
}

// preStop reports whether a container has a preStop hook, according to its annotation or to the pod's spec.
func (t *turn) preStop(c *pod.Container) bool {
	if c.PreStop {
		return true
	}
	spec := pod.SpecOf(t.in.Pod, c.Name)
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
}

// cancelDeadHooks cancels the hooks of containers that have ended.
func (t *turn) cancelDeadHooks() {
	for _, a := range t.in.InFlight {
		if a.Op != pod.OpPostStart && a.Op != pod.OpPreStop {
			continue
		}
		if c := t.in.Observed.ByID(a.ID); c == nil || !t.alive(c) {
			t.cancel(a, WhyHookOfDead)
		}
	}
}
