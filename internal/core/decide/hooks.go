package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// running looks after a container that runs: it is restarted when its definition changed, a probe or its postStart
// hook failed; else its hook is run.
func (t *turn) running(c *v1.Container, inst *pod.Container, cm *ContainerMemory) step {
	why, cause, end := pod.Why(""), pod.CauseNone, t.in.Memory.end(inst.ID)
	switch {
	case t.changed(inst):
		why, cause = WhyChanged, pod.CauseChanged
	case t.resizeRestarts(c, inst):
		why, cause = WhyResizeRestart, pod.CauseResize
	case cm.ProbedID == inst.ID && cm.Unhealthy && !cm.Started && c.StartupProbe != nil:
		why, cause = WhyStartup, pod.CauseStartup
	case cm.ProbedID == inst.ID && cm.Unhealthy:
		why, cause = WhyLiveness, pod.CauseLiveness
	case cm.PostStartedID == inst.ID && cm.PostStartFailed:
		why, cause = WhyPostStartFailed, pod.CausePostStart
	case end != nil: // what has begun to end does so, whatever its probes say meanwhile
		why, cause = WhySuperseded, end.Cause
	case t.stopping(inst.ID), cm.PreStoppedID == inst.ID, cm.StopID == inst.ID:
		why = WhySuperseded
	}
	if why != "" {
		t.killFor(cause, inst, why)
		return stepBusy
	}
	if !PostStartDone(c, cm, inst) && !t.wasStarted(c.Name, inst) {
		t.begin(pod.Action{Op: pod.OpPostStart, Container: c.Name, ID: inst.ID, Why: WhyPostStart})
		return stepBusy
	}
	return stepUp
}

// stopping reports whether a container is being ended.
func (t *turn) stopping(id string) bool {
	return t.busyID(pod.OpStopContainer, id) != nil || t.busyID(pod.OpPreStop, id) != nil
}

// preStop reports whether a container has a preStop hook, by its spec or by its own annotation.
func (t *turn) preStop(c *pod.Container) bool {
	if c.PreStop {
		return true
	}
	spec := pod.SpecOf(t.in.Pod, c.Name)
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
}

// cancelDeadHooks cuts short the hooks of containers that have ended meanwhile: nobody is left for them.
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
