package podworker

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
)

// paced are the verbs that begin in a place at the gate only, and keeps those that the place is kept for. A pull begins in
// its turn, since most images are here already, and goes on without: it waits for the network, not for this machine.
func paced(a pod.Action) bool { return keeps(a) || a.Op == pod.OpPullImage }

func keeps(a pod.Action) bool {
	return a.Op == pod.OpSetUp || a.Op == pod.OpRunSandbox || a.Op == pod.OpStartContainer
}

// placeFor is how long a pod keeps its place. What takes longer (a pod network that hangs, say) must not keep the pods
// from starting that it may be waiting for itself.
const placeFor = 20 * time.Second

// pace takes starting actions out of the plan of a pod that has no place yet. The place, or the wait for one, is given
// back once there is nothing left to start, or when its time is over.
func (w *Worker) pace(in *decide.Input, plan *decide.Plan) {
	wants := slices.ContainsFunc(plan.Do, paced)
	busy := slices.ContainsFunc(in.InFlight, keeps)
	if w.queued && (!wants && !busy && !in.Stale || w.gated && in.Now.Sub(w.work.gatedAt) >= placeFor) {
		w.leaveGate()
	}
	if wants && !w.gated {
		w.queued, w.work.gatedAt = true, in.Now
		if w.gated = w.cfg.Gate.Enter(w.ref.UID); !w.gated {
			plan.Do = slices.DeleteFunc(plan.Do, paced)
			plan.Why = "waits for other pods to start first"
		}
	}
	if w.gated && wants && !busy && !slices.ContainsFunc(plan.Do, keeps) { // it begins a pull, no more
		w.leaveGate()
	}
	if w.gated {
		plan.WakeAt = earliest(plan.WakeAt, w.work.gatedAt.Add(placeFor))
	}
}

func (w *Worker) leaveGate() {
	w.queued, w.gated = false, false
	w.cfg.Gate.Leave(w.ref.UID)
}

// finishWithin is how long what must not be cut short may go on when the agent ends: less than those who stop it wait.
const finishWithin = 10 * time.Second

var errAgentEnds = errors.New("the node agent ends")

// flightContext ends with the agent, but for calls that would leave something half made: these get time to finish.
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

// begin starts the planned actions, each in a goroutine that ends with its outcome, and cancels what the plan
// cuts short.
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
	began := time.Now()
	o := w.cfg.Performer.Do(ctx, job)
	o.Action, o.Began, o.Ended = job.Action, began, time.Now()
	o.Canceled = o.Err != nil && ctx.Err() != nil
	// From here the texts go to the memory, the checkpoint, the status, the timeline and the log.
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
