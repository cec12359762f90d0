package podworker

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/stack"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// paced reports whether an action may begin only while the pod has a slot of the Gate, which limits how many pods start at once. An
// image pull needs a slot to begin, because usually the image is present and the start follows at once. A running pull needs no slot,
// because it waits for the network, not for this machine.
func paced(a pod.Action) bool { return keeps(a) || a.Op == pod.OpPullImage }

// keeps reports whether a pod keeps its slot of the Gate while the action is in flight.
func keeps(a pod.Action) bool {
	return a.Op == pod.OpSetUp && !a.Renews || a.Op == pod.OpRunSandbox || a.Op == pod.OpStartContainer
}

// restarts reports whether the plan starts nothing except containers that have run before.
func restarts(obs *pod.Observed, plan *decide.Plan) bool {
	return !slices.ContainsFunc(plan.Do, func(a pod.Action) bool {
		return paced(a) && (a.Container == "" || !slices.ContainsFunc(obs.Containers, func(c pod.Container) bool { return c.Name == a.Container }))
	})
}

// slotFor is how long a pod may keep its slot at the gate. A pod that takes longer (for example because its pod network hangs)
// must not block the start of other pods, because it may be waiting for one of them.
const slotFor = 20 * time.Second

// pace removes the actions that start something from the plan of a pod that has no slot of the Gate. The pod gives up its slot, or leaves
// the queue for one, when nothing is left to start or when slotFor is over.
func (w *Worker) pace(in *decide.Input, plan *decide.Plan) {
	wants := slices.ContainsFunc(plan.Do, paced)
	busy := slices.ContainsFunc(in.InFlight, keeps)
	if w.queued && !w.gated && !wants && w.cfg.Gate.Inside(w.ref.UID) { // it got its slot while it cannot start anything: its inspection may hang
		w.gated, w.work.gatedAt = true, in.Now
	}
	switch over := !wants && !busy && !in.Stale; {
	case over && w.gated && w.work.started:
		w.cfg.Gate.Finish(w.ref.UID)
		w.leaveGate()
	case over && w.queued, w.gated && in.Now.Sub(w.work.gatedAt) >= slotFor:
		w.leaveGate()
	}
	if wants && !w.gated {
		w.queued, w.work.gatedAt = true, in.Now
		if w.gated = w.cfg.Gate.Enter(w.ref.UID, restarts(in.Observed, plan)); !w.gated {
			plan.Do = slices.DeleteFunc(plan.Do, paced)
			plan.Why = "waits for other pods to start first"
		}
	}
	if w.gated && wants && !busy && !slices.ContainsFunc(plan.Do, keeps) { // this turn only begins a pull, which needs no slot while it runs
		w.leaveGate()
	}
	if w.gated {
		w.work.started = w.work.started || slices.ContainsFunc(plan.Do, keeps)
		plan.WakeAt = earliest(plan.WakeAt, w.work.gatedAt.Add(slotFor))
	}
}

func (w *Worker) leaveGate() {
	w.queued, w.gated, w.work.started = false, false, false
	w.cfg.Gate.Leave(w.ref.UID)
}

// finishWithin is how long the start of a sandbox or a container may go on after the agent is told to stop. It is shorter than
// the time after which a service manager kills the agent.
const finishWithin = 10 * time.Second

var errAgentEnds = errors.New("the node agent ends")

// flightContext returns the context of an action, which ends when the agent stops. The start of a sandbox or a container gets
// finishWithin to complete, because an interrupted start would leave the sandbox or container half made.
func (w *Worker) flightContext(op pod.Op) (context.Context, context.CancelFunc) {
	if op != pod.OpRunSandbox && op != pod.OpStartContainer {
		return context.WithCancel(w.cfg.Context)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(w.cfg.Context))
	stop := context.AfterFunc(w.cfg.Context, func() {
		time.AfterFunc(finishWithin, func() { cancel(errAgentEnds) })
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// begin starts the planned actions, each in a goroutine that ends with its outcome, and cancels the actions that the plan
// cancels.
func (w *Worker) begin(p *v1.Pod, obs *pod.Observed, plan *decide.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.engage()
	for _, key := range plan.Cancel {
		for i := range b.flights {
			if f := &b.flights[i]; f.action == key.Key() && !f.canceled {
				f.canceled = true
				f.cancel()
			}
		}
	}
	for _, a := range plan.Do {
		job := pod.Job{Ref: w.ref, Pod: p, Observed: obs, Action: a}
		if c := w.memory.Container(a.Container); c != nil {
			job.ImageRef, job.Kind = c.ImageRef, c.Kind
		}
		ctx, cancel := w.flightContext(a.Op)
		b.flights = append(b.flights, flight{action: a.Key(), began: time.Now(), cancel: cancel})
		w.cfg.Group.Add(1)
		go w.perform(ctx, cancel, job)
	}
}

func (w *Worker) perform(ctx context.Context, cancel context.CancelFunc, job pod.Job) {
	defer w.cfg.Group.Done()
	stack.Grow()
	began := time.Now()
	o := w.cfg.Performer.Do(ctx, job)
	o.Action, o.Began, o.Ended = job.Action, began, time.Now()
	o.Canceled = o.Err != nil && ctx.Err() != nil
	// The texts are bounded here, before they go to the memory, the checkpoint, the status, the timeline and the log.
	o.Reason, o.Message, o.Err = pod.Text(o.Reason), pod.Text(o.Message), pod.TextError(o.Err)
	cancel()
	w.log(job, &o)

	key := job.Action.Key()
	w.mu.Lock()
	b := w.engage()
	b.flights = slices.DeleteFunc(b.flights, func(f flight) bool { return f.action == key })
	if job.Action.Op.TouchesRuntime() {
		o.Ended = w.cfg.Cache.Inspect(job.Ref.UID)
	}
	b.outcomes = append(b.outcomes, o)
	w.mu.Unlock()
	w.Look("outcome of " + job.Action.Op.String())
}
