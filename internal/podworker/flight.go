package podworker

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
)

// paced are the verbs that need a place at the gate. Pulls wait for the network, not for this machine.
func paced(op pod.Op) bool {
	return op == pod.OpSetUp || op == pod.OpRunSandbox || op == pod.OpStartContainer
}

// pace takes starting actions out of the plan of a pod that has no place yet, and gives the place back once there
// is nothing left to start.
func (w *Worker) pace(in *decide.Input, plan *decide.Plan) {
	wants := slices.ContainsFunc(plan.Do, func(a pod.Action) bool { return paced(a.Op) })
	if wants && !w.gated {
		if w.gated = w.cfg.Gate.Enter(w.ref.UID); !w.gated {
			plan.Do = slices.DeleteFunc(plan.Do, func(a pod.Action) bool { return paced(a.Op) })
			plan.Why = "waits for other pods to start first"
		}
		return
	}
	if !w.gated || wants || in.Stale {
		return
	}
	if !slices.ContainsFunc(in.InFlight, func(a pod.Action) bool { return paced(a.Op) }) {
		w.gated = false
		w.cfg.Gate.Leave(w.ref.UID)
	}
}

// begin starts the planned actions, each in a goroutine that ends with its outcome, and cancels what the plan
// cuts short.
func (w *Worker) begin(p *v1.Pod, obs *pod.Observed, plan *decide.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range plan.Cancel {
		for i := range w.flights {
			if w.flights[i].action == key.Key() && !w.flights[i].canceled {
				w.flights[i].canceled = true
				w.flights[i].cancel()
			}
		}
	}
	for _, a := range plan.Do {
		job := pod.Job{Ref: w.ref, Pod: p, Observed: obs, Action: a}
		if c := w.memory.Container(a.Container); c != nil {
			job.ImageRef = c.ImageRef
		}
		ctx, cancel := context.WithCancel(w.ctx)
		w.flights = append(w.flights, flight{action: a.Key(), cancel: cancel})
		w.wg.Add(1)
		go w.perform(ctx, cancel, job)
	}
}

func (w *Worker) perform(ctx context.Context, cancel context.CancelFunc, job pod.Job) {
	defer w.wg.Done()
	began := time.Now()
	o := w.cfg.Performer.Do(ctx, job)
	o.Action, o.Began, o.Ended = job.Action, began, time.Now()
	o.Canceled = o.Err != nil && ctx.Err() != nil
	cancel()
	w.log(job, &o)

	key := job.Action.Key()
	w.mu.Lock()
	w.flights = slices.DeleteFunc(w.flights, func(f flight) bool { return f.action == key })
	w.outcomes = append(w.outcomes, o)
	w.mu.Unlock()
	if job.Action.Op.TouchesRuntime() {
		w.cfg.Cache.Inspect(w.ref.UID)
	}
	w.Look("outcome of " + job.Action.Op.String())
}
