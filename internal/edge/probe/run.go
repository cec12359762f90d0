package probe

import (
	"context"
	"time"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// runtimeSilence is how long after a command's time is up a runtime may be silent before it counts as hanging. A runtime
// that hangs says nothing about the containers in it.
const runtimeSilence = 30 * time.Second

// batch is one run of a probe, and all probes that share its result: the first one, and the other probes of the same container
// that are due and check the same.
type batch struct {
	runners []*runner
	target  Target
	began   time.Time
	job     *work.Job // of a command
}

// run runs one probe and takes its result into account.
func (p *Probes) run(ctx context.Context, b batch) {
	defer p.wg.Done()
	r := b.runners[0]
	limit := timeout(r.spec)
	within := limit
	if r.spec.Exec != nil {
		within += runtimeSilence // the runtime keeps the limit
	}
	probeCtx, cancel := context.WithTimeout(ctx, within)
	outcome, output := p.check(probeCtx, b.target, r.spec, limit)
	output = pod.Text(output) // it is logged, becomes an event, and the reason that a container is stopped for
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
	p.running--
	if r.spec.Exec != nil {
		p.execEnded(r)
	}
	void := ctx.Err() != nil // the agent ends, or the first one's container is gone: nothing was learned
	r.cancel()
	var news []report
	for _, one := range b.runners {
		one.cancel, one.job = nil, nil
		switch {
		case one.dropped:
		case void:
			p.timers.Put(one, now)
		default:
			news = append(news, p.takes(one, &b, outcome, output, now))
		}
	}
	p.nudge() // there is room for another
	p.mu.Unlock()
	for i := range news {
		p.tell(&news[i], b.target.Spec.Name, output)
	}
}

// report is what is to be told of a result, without the lock.
type report struct {
	r       *runner
	state   State
	changed bool
	events  []Event
	late    *Lateness
	behind  *Behind
}

// takes takes a result into account for one probe. Called with the lock held.
func (p *Probes) takes(r *runner, b *batch, outcome Outcome, output string, now time.Time) report {
	counted, before := !b.began.Before(r.regular), r.c.state
	n := report{r: r}
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
	// Under the lock: whoever counts must not hear of a pod after Forget.
	p.cfg.Observe(Measurement{Pod: r.c.ref, Container: b.target.Spec.Name, Kind: r.kind, Result: outcome.label(), Took: now.Sub(b.began), Late: late})
	return n
}

func (p *Probes) tell(n *report, name, output string) {
	c := n.r.c
	if n.changed {
		p.cfg.Log.Info("probe changed the state of a container", "pod", c.ref.String(), "container", name,
			"probe", n.r.kind, "started", n.state.Started, "ready", n.state.Ready, "unhealthy", n.state.Unhealthy, "output", output)
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
