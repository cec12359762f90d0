package decide

import (
	"cmp"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Decide returns the plan for a pod: which actions to begin and to cancel now. It does not change its input. For a pod that has nothing to
// do it allocates no memory.
func Decide(in *Input) Plan { return run(in, nil) }

// run implements Decide. If tr is not nil, it records its steps in tr.
func run(in *Input, tr *trace) Plan {
	t := turn{in: in, stale: in.Stale, trace: tr}
	t.plan.RestartingAll = in.Memory.RestartingAll
	cause := t.end()
	t.stepEnd(cause)
	if cause != pod.CauseNone {
		t.terminate(cause)
		return t.plan
	}
	if in.Pod == nil { // the pod may still be wanted by a source that has not answered, or an inspection is needed first: do nothing
		return t.plan
	}
	t.active()
	return t.plan
}

// turn holds the state of one call of Decide.
type turn struct {
	in      *Input
	plan    Plan
	stale   bool
	ending  bool         // the whole pod ends: nothing may start
	sandbox *pod.Sandbox // the sandbox in which containers may run; nil: there is none
	none    ContainerMemory
	waiting pod.Why // the first reason why an action that is needed has not begun

	trace *trace // records the steps of the decision; nil: they are not recorded

	noNetwork bool // the pod cannot get a sandbox until the node's pod network is ready
}

// active decides about a pod that should run.
func (t *turn) active() {
	in := t.in
	if !in.Memory.Admitted && len(in.Observed.Sandboxes) == 0 {
		t.plan.Why = WhyNotAdmitted
		t.step(ruleAdmission, "")
		return
	}
	t.wake(t.deadline())
	t.step(ruleDeadline, "")
	t.cancelDeadHooks()
	t.step(ruleHooks, "")
	t.ensureSetUp()
	t.step(ruleSetUp, "")
	t.ensureSandbox()
	t.step(ruleSandbox, "")
	switch {
	case t.noNetwork:
	case t.restartAll():
		t.step(ruleRestartAll, "")
	default:
		t.step(ruleRestartAll, "")
		t.stopStrays()
		t.step(ruleStrays, "")
		t.containers()
		t.resize()
		t.step(ruleResize, "")
		t.prune()
		t.step(rulePrune, "")
	}
	t.sayWhy()
}

// sayWhy sets the reason of the plan, Plan.Why.
func (t *turn) sayWhy() {
	switch {
	case t.noNetwork:
		t.plan.Why = WhyNetwork
	case len(t.plan.Do) > 0:
		t.plan.Why = t.plan.Do[0].Why
	case t.in.Node.Predecessor:
		t.plan.Why = WhyPredecessor
	case len(t.in.InFlight) > 0:
		t.plan.Why = WhyWaiting
	case t.stale:
		t.plan.Why = cmp.Or(t.waiting, WhyInspect)
	default:
		t.plan.Why = cmp.Or(t.waiting, WhyRunning)
	}
}

// begin plans an action unless it is in flight or may not begin now.
func (t *turn) begin(a pod.Action) {
	if a.Op.Starts() && (t.stale || t.in.Node.Predecessor) {
		return
	}
	key := a.Key()
	for _, f := range t.in.InFlight {
		if f.Key() == key {
			return
		}
	}
	t.plan.Do = append(t.plan.Do, a)
}

// cancel plans to cancel an action that is in flight. Later decisions may plan this again until the action has an outcome.
func (t *turn) cancel(a pod.Action, why pod.Why) {
	a.Why = why
	t.plan.Cancel = append(t.plan.Cancel, a)
}

// wake makes Plan.WakeAt ask for another decision at a time that has not come yet.
func (t *turn) wake(at time.Time) {
	if !at.After(t.in.Now) {
		return
	}
	if t.plan.WakeAt.IsZero() || at.Before(t.plan.WakeAt) {
		t.plan.WakeAt = at
	}
}

// wait records why an action that is needed has not begun. Only the first reason is kept.
func (t *turn) wait(why pod.Why) { t.waiting = cmp.Or(t.waiting, why) }

// memory returns the ContainerMemory of a container: what earlier turns have stored about it. The result is never nil, and the caller
// must not change it.
func (t *turn) memory(name string) *ContainerMemory {
	if cm := t.in.Memory.Container(name); cm != nil {
		return cm
	}
	return &t.none
}

// busy reports whether any action of this kind is in flight.
func (t *turn) busy(op pod.Op) bool {
	for i := range t.in.InFlight {
		if t.in.InFlight[i].Op == op {
			return true
		}
	}
	return false
}

// busyName reports whether an action of this kind is in flight for a container name.
func (t *turn) busyName(op pod.Op, name string) bool {
	for i := range t.in.InFlight {
		if t.in.InFlight[i].Op == op && t.in.InFlight[i].Container == name {
			return true
		}
	}
	return false
}

// busyID returns the action of this kind that is in flight for an ID, or nil.
func (t *turn) busyID(op pod.Op, id string) *pod.Action {
	for i := range t.in.InFlight {
		if t.in.InFlight[i].Op == op && t.in.InFlight[i].ID == id {
			return &t.in.InFlight[i]
		}
	}
	return nil
}

// alive reports whether a container has to be stopped before its next attempt may start. A container of unknown state counts as
// dead once StopContainer has succeeded for it.
func (t *turn) alive(c *pod.Container) bool {
	if c.State == pod.StateUnknown {
		cm := t.memory(c.Name)
		return cm.StopID != c.ID || !cm.Stopped
	}
	return c.State == pod.StateRunning
}

// aliveNamed reports whether any instance of a container is alive.
func (t *turn) aliveNamed(name string) bool {
	for i := range t.in.Observed.Containers {
		c := &t.in.Observed.Containers[i]
		if c.Name == name && t.alive(c) {
			return true
		}
	}
	return false
}
