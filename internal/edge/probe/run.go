package probe

import (
	"context"
	"time"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// runtimeSilence is how long the runtime may take to answer after a command's timeout, before it counts as hanging. A runtime
// that hangs gives no information about its containers.
const runtimeSilence = 30 * time.Second

// batch is one run that serves several probes: the first one, and the other probes of the same container that are due and run
// the same check.
type batch struct {
	runners []*runner
	target  Target
	began   time.Time
	job     *work.Job // the scheduler's job for a command; nil: the probe has no command
	slow    bool      // the run no longer counts towards MaxParallel
}

// run runs one probe and applies its result to the probes of the batch.
func (p *Probes) run(ctx context.Context, b *batch) {
	defer p.wg.Done()
	r := b.runners[0]
	limit := timeout(r.spec)
	within := limit
	if r.spec.Exec != nil {
		within += runtimeSilence // the runtime enforces the timeout itself, so the agent waits longer
	}
	probeCtx, cancel := context.WithTimeout(ctx, within)
	outcome, output := p.check(probeCtx, b.target, r.spec, limit)
	output = pod.Text(output) // safe for the log, an event and the reason of a restart
	cancel()
	now := time.Now()
	if b.job != nil {
		if ctx.Err() != nil || outcome == Unknown {
			b.job.Cut()
		} else {
			b.job.Done()
		}
	}

	p.mu.Lock()
	p.ended(b)
	void := ctx.Err() != nil // the agent ends, or the container of the first probe is gone: there is no result
	r.cancel()
	var news []report
	for _, one := range b.runners {
		one.cancel, one.job = nil, nil
		switch {
		case one.dropped:
		case void:
			p.timers.Put(one, now)
		default:
			news = append(news, p.takes(one, b, outcome, output, now))
		}
		one.held = false
	}
	p.nudge() // wake the loop, because another probe may run now
	p.mu.Unlock()
	for i := range news {
		p.announce(&news[i], b.target.Spec.Name, output)
	}
}

// report describes what the result of one run changes. The callbacks of Config are called from it after the lock is released.
type report struct {
	r       *runner
	was     State // state of the container before the result
	state   State
	changed bool
	failed  bool // the result is a failure
	events  []Event
	late    *Lateness
	behind  *Behind
}

// takes applies the result of a run to the probe of one runner, and returns what the result changes. It is called with the lock held.
func (p *Probes) takes(r *runner, b *batch, outcome Outcome, output string, now time.Time) report {
	counted, before := !b.began.Before(r.regular), r.c.state
	n := report{r: r, was: before, failed: outcome == Failure}
	var late time.Duration
	if counted {
		late = b.began.Sub(r.regular)
		n.late, n.behind = p.lateness(r, late, b.began)
	}
	if outcome == Success || outcome == Warning || counted {
		n.events = r.c.events(r.kind, outcome, output)
	}
	r.c.take(r, outcome, output, counted)
	p.next(r, counted, now)
	n.state, n.changed = r.c.state, r.c.state != before
	// Observe is called with the lock held, so that no call for a pod comes after Forget.
	p.cfg.Observe(Measurement{Pod: r.c.ref, Container: b.target.Spec.Name, Kind: r.kind, Result: outcome.label(), Took: now.Sub(b.began), Late: late})
	return n
}

func (p *Probes) announce(n *report, name, output string) {
	c := n.r.c
	if n.changed {
		why := n.r.kind.String() + " probe succeeded"
		if n.failed {
			why = n.r.kind.String() + " probe failed"
		}
		args := []any{"pod", c.ref.String(), "container", name, "why", why}
		if output != "" {
			args = append(args, "output", output)
		}
		p.cfg.Log.Info(n.state.since(&n.was), args...)
	}
	for _, e := range n.events {
		p.cfg.Event(e)
	}
	if n.late != nil {
		p.cfg.Late(*n.late)
	}
	if n.behind != nil {
		p.cfg.Behind(*n.behind)
	}
	if n.changed {
		p.cfg.Notify(c.ref.UID)
	}
}

// since describes, for the log, how the state changed from was to s.
func (s *State) since(was *State) string {
	switch {
	case s.Unhealthy && !was.Unhealthy:
		return "container is unhealthy and will be stopped"
	case s.Started && !was.Started && s.Ready:
		return "container has started and is ready"
	case s.Started && !was.Started:
		return "container has started and is not ready yet"
	case s.Ready:
		return "container is ready"
	}
	return "container is not ready"
}

// next decides when the probe runs again, if at all, and which other probes may start now. It is called with the lock held.
func (p *Probes) next(r *runner, counted bool, now time.Time) {
	c := r.c
	switch {
	case c.state.Unhealthy && r.kind != Readiness: // the container will be stopped, so another result of these probes changes nothing
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

// take updates the state of the container with one result; counted is false for a quick probe. It is called with the lock held.
func (c *container) take(r *runner, o Outcome, output string, counted bool) {
	if o == Unknown {
		return // there is no new information
	}
	if o == Warning {
		o = Success
	}
	if r.failed, r.output = o == Failure, ""; r.failed {
		r.output = pod.TextMax(output, maxKept)
	}
	if o == Failure && !counted {
		// A quick probe has failed. (It is an extra one before a regular probe is due, to make the pod ready faster.) The failure ends a
		// series of successes, but does not count towards failureThreshold.
		r.times = 0
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

// events returns the event for users about the outcome of a probe; nil: a success has none.
func (c *container) events(k Kind, o Outcome, output string) []Event {
	e := Event{Pod: c.ref, Container: c.target.Spec.Name, List: c.target.List, Reason: "Unhealthy"}
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
