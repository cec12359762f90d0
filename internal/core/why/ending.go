package why

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// ending fills the answer for a pod that has to end and has not ended completely.
func ending(in *Input, a *Answer) bool {
	t, deleted := in.Turn, in.Pod.DeletionTimestamp != nil
	ends := deleted || t != nil && !t.Memory.StopBegan.IsZero()
	if !ends || !deleted && t != nil && t.Phase != decide.PhaseStopping && in.flight(pod.OpTearDown) == nil && in.retry(pod.OpTearDown) == nil {
		return false // nothing of the pod runs, so another rule gives the reason of its end
	}
	if t != nil && !t.Memory.StopBegan.IsZero() {
		a.Since = t.Memory.StopBegan
	} else if deleted { // the API's timestamp is the end of the grace period
		a.Since = in.Pod.DeletionTimestamp.Time
		if grace := in.Pod.DeletionGracePeriodSeconds; grace != nil {
			a.Since = a.Since.Add(-pod.Seconds(*grace))
		}
	}
	why := "it is deleted"
	if stoppedByUser(in.Pod) {
		why = "somebody stops it (wherry stop)"
	}
	if !deleted {
		why = "the node ends it"
		if t.Memory.Stop != nil {
			why = "the node ends it (" + t.Memory.Stop.Reason + ")"
		}
	}
	switch {
	case t == nil:
		a.set(NoAnswer, "the pod ends, but its worker is busy and does not say what is left of it; %s", why)
	case in.flight(pod.OpPreStop) != nil:
		preStop(in, a, why)
	case in.flight(pod.OpStopContainer) != nil || t.Observed.AnyAlive():
		stopsContainers(in, a, why)
	case in.flight(pod.OpStopSandbox) != nil || t.Phase == decide.PhaseStopping && in.sandboxRemains():
		a.set(SandboxStops, "all containers have ended and the sandbox with the pod's network is being removed; %s", why)
		if r := in.retry(pod.OpStopSandbox); r != nil && in.Now.Before(r.Until) {
			a.fact("runtime", r.Message)
			a.then(r.Until, "the node tries to stop the sandbox again")
		}
	case in.retry(pod.OpTearDown) != nil:
		r := in.retry(pod.OpTearDown)
		a.set(TearDownFails, "nothing of the pod runs, but its volumes cannot be removed; %s", why)
		a.fact("error", r.Message)
		a.then(r.Until, "the node tries again")
		a.do("look which mount is busy or which driver is away: findmnt | grep %s", in.Pod.UID)
	case in.flight(pod.OpTearDown) != nil:
		a.set(TearDownRuns, "nothing of the pod runs and its volumes are being unmounted; %s", why)
		a.Since = in.flight(pod.OpTearDown).Began
	default:
		remains(in, a, why)
	}
	return true
}

// sandboxRemains reports whether a sandbox of the pod may still hold its network: one that is ready, or one whose stop has failed.
func (in *Input) sandboxRemains() bool {
	return slices.ContainsFunc(in.Turn.Observed.Sandboxes, func(s pod.Sandbox) bool { return s.Ready }) || in.retry(pod.OpStopSandbox) != nil
}

// remains fills the answer for a pod that has no running containers, but whose object still exists.
func remains(in *Input, a *Answer, why string) {
	if len(in.Pod.Finalizers) > 0 && in.Pod.DeletionTimestamp != nil {
		a.set(FinalizersRemain, "nothing of the pod is left to end on this node; finalizers keep its object: %s", strings.Join(in.Pod.Finalizers, ", "))
		a.then(time.Time{}, "the object goes when whoever set the finalizers removes them")
		a.do("find the controller of the finalizer and see why it does not remove it")
		return
	}
	if stoppedByUser(in.Pod) {
		a.set(StoppedByUser, "somebody stopped the pod (wherry stop); it is kept for its logs")
		a.do("remove it: wherry rm -n %s %s; or start it again with wherry run and its manifest", in.Pod.Namespace, in.Pod.Name)
		return
	}
	a.set(Removing, "nothing of the pod runs; what is left of it is being removed; %s", why)
}

// stoppedByUser reports whether a pushed pod ends or has ended because of wherry stop. The annotation of other pods has no meaning.
func stoppedByUser(p *v1.Pod) bool {
	return pod.IsStatic(p) && p.DeletionTimestamp != nil && p.Annotations[pod.AnnotationStopped] != ""
}

// preStop fills the answer while a preStop hook runs.
func preStop(in *Input, a *Answer, why string) {
	f := in.flight(pod.OpPreStop)
	a.Container = f.Action.Container
	a.set(PreStopRuns, "the preStop hook of container %q runs; %s", a.Container, why)
	a.Since = f.Began
	killAt := in.Turn.Memory.StopBegan.Add(in.Turn.Memory.StopGrace)
	if in.Turn.Memory.StopBegan.IsZero() {
		killAt = f.Began.Add(f.Action.Grace)
	}
	a.then(killAt, "the grace period ends, and the container is killed")
}

// stopsContainers fills the answer for a pod whose containers have to end and still run.
func stopsContainers(in *Input, a *Answer, why string) {
	m := &in.Turn.Memory
	if f := in.flight(pod.OpStopContainer); f != nil {
		a.Container = f.Action.Container
		a.Since = f.Began
	} else {
		for i := range in.Turn.Observed.Containers {
			if c := &in.Turn.Observed.Containers[i]; c.Alive() {
				a.Container = c.Name
			}
		}
	}
	killAt := m.StopBegan.Add(m.StopGrace)
	if m.Stop != nil && m.Stop.AtOnce && in.Now.Sub(killAt) <= stopSlack {
		a.set(GraceRuns, "container %q is killed at once, without a grace period; %s", a.Container, why)
		return
	}
	if overdue := in.Now.Sub(killAt); overdue > stopSlack {
		a.set(StopOverdue, "the grace period is over since %s, and the runtime has not ended container %q yet; %s", round(overdue), a.Container, why)
		if cm := m.Container(a.Container); cm != nil && in.Now.Before(cm.StopUntil) {
			a.then(cm.StopUntil, "the node asks the runtime again")
		} else {
			a.then(time.Time{}, "the node asks again when the runtime has answered")
		}
		a.do("look at the runtime and for processes that cannot be killed (state D): crictl ps; ps -eo pid,stat,cmd")
		return
	}
	a.set(GraceRuns, "container %q was asked to end and may take its grace period of %s; %s", a.Container, m.StopGrace, why)
	if f := in.flight(pod.OpStopContainer); f != nil && in.Now.Sub(f.Began) > ignores {
		a.set(GraceRuns, "container %q has not ended %s after signal %s, and may take its grace period of %s; %s",
			a.Container, round(in.Now.Sub(f.Began)), in.signal(f.Action.ID), m.StopGrace, why)
	}
	a.then(killAt, "the grace period ends, and the container is killed")
	a.do("a program that ignores SIGTERM always takes the whole grace period: handle the signal, or set a shorter terminationGracePeriodSeconds")
}

// If a container still runs this long after the node began to stop it, it probably ignores its stop signal.
const ignores = 5 * time.Second

// signal returns the stop signal of a container.
func (in *Input) signal(id string) string {
	for i := range in.Turn.Observed.Containers {
		if c := &in.Turn.Observed.Containers[i]; c.ID == id && c.StopSignal != "" {
			return c.StopSignal
		}
	}
	return "SIGTERM"
}

// If a container still runs this long after the end of its grace period, its stop counts as overdue. The time covers the minimum
// grace period of 2 s and the kill itself.
const stopSlack = 5 * time.Second
