package probe

import (
	"context"
	"time"

	"github.com/wherry-node/wherry/internal/pod"
)

// runtimeSilence is how long after a command's time is up a runtime may be silent before it counts as hanging. A runtime
// that hangs says nothing about the containers in it.
const runtimeSilence = 30 * time.Second

// run runs one probe and takes its result into account.
func (p *Probes) run(ctx context.Context, r *runner, t Target) {
	defer p.wg.Done()
	began := time.Now()
	limit := timeout(r.spec)
	within := limit
	if r.spec.Exec != nil {
		within += runtimeSilence // the runtime keeps the limit
	}
	probeCtx, cancel := context.WithTimeout(ctx, within)
	outcome, output := p.check(probeCtx, t, r.spec, limit)
	output = pod.Text(output) // it is logged, becomes an event, and the reason that a container is stopped for
	cancel()
	now := time.Now()

	p.mu.Lock()
	void := ctx.Err() != nil || r.dropped // the agent ends, or the container is gone: it says nothing about it
	p.running--
	if r.spec.Exec != nil {
		if p.execs[r.c.ref.UID]--; p.execs[r.c.ref.UID] == 0 {
			delete(p.execs, r.c.ref.UID)
		}
	}
	r.cancel()
	r.cancel = nil
	var events []Event
	changed, counted := false, !began.Before(r.regular)
	if !void {
		before := r.c.state
		if outcome == Success || outcome == Warning || counted {
			events = r.c.events(r.kind, outcome, output)
		}
		r.c.take(r, outcome, output, counted)
		p.next(r, counted, now)
		changed = r.c.state != before
		// Under the lock: whoever counts must not hear of a pod after Forget.
		p.cfg.Observe(Measurement{Pod: r.c.ref, Container: t.Spec.Name, Kind: r.kind, Result: outcome.label(), Took: now.Sub(began)})
	}
	state := r.c.state
	p.nudge() // there is room for another
	p.mu.Unlock()

	if void {
		return
	}
	if changed {
		p.cfg.Log.Info("probe changed the state of a container", "pod", r.c.ref.String(), "container", t.Spec.Name,
			"probe", r.kind, "started", state.Started, "ready", state.Ready, "unhealthy", state.Unhealthy, "output", output)
	}
	for _, e := range events {
		p.cfg.Event(e)
	}
	if changed {
		p.cfg.Notify(r.c.ref.UID)
	}
}

// next says when the probe runs again, if it does, and what else may run now. Called with the lock held.
func (p *Probes) next(r *runner, counted bool, now time.Time) {
	c := r.c
	switch {
	case c.state.Unhealthy && r.kind != Readiness: // an exec in a container that is being stopped for it tells nothing new
		p.halt(c, Liveness)
		p.halt(c, Startup)
	case r.kind == Startup && c.state.Started:
		p.halt(c, Startup)
		p.begin(c, Liveness, now, now)
		p.begin(c, Readiness, now, now)
	default:
		p.again(r, counted, now)
	}
}

// take changes the state of the container by one result. Called with the lock held.
func (c *container) take(r *runner, o Outcome, output string, counted bool) {
	if o == Unknown {
		return // nothing was learned
	}
	if o == Warning {
		o = Success
	}
	if o == Failure && !counted {
		r.times = 0 // it breaks a row of successes, and is no failure
		return
	}
	if o != r.last || r.times == 0 {
		r.last, r.times = o, 0
	}
	r.times++
	success, failure := thresholds(r.spec)
	if (o == Success && r.times < success) || (o == Failure && r.times < failure) {
		return
	}
	switch r.kind {
	case Readiness:
		c.ready = o == Success
	case Startup, Liveness:
		if o == Failure {
			c.state.Unhealthy, c.state.Kind, c.state.Message = true, r.kind, output
			c.state.Grace = r.spec.TerminationGracePeriodSeconds
		} else if r.kind == Startup {
			c.state.Started = true
		}
	case kinds:
	}
	c.state.Ready = c.state.Started && c.ready
}

// events says what users are told about a result.
func (c *container) events(k Kind, o Outcome, output string) []Event {
	e := Event{Pod: c.ref, Container: c.target.Spec.Name, Reason: "Unhealthy"}
	switch o {
	case Success:
		return nil
	case Warning:
		e.Reason, e.Message = "ProbeWarning", k.String()+" probe warning: "+output
	case Failure:
		e.Message = k.String() + " probe failed: " + output
	case Unknown:
		e.Message = k.String() + " probe errored and resulted in unknown state: " + output
	}
	return []Event{e}
}
