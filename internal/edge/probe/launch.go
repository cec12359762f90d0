package probe

import (
	"context"
	"time"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/mergepatch"
)

// launch starts the probes that are due, and returns when to call it again.
func (p *Probes) launch(ctx context.Context) time.Duration {
	wait, late := p.startDue(ctx)
	if late != nil {
		p.cfg.Behind(*late)
	}
	return wait
}

// startDue starts the probes that are due. It returns how long the next probe has to wait, and a report if there has been no room for
// probes for long. A probe with a command first waits until the scheduler of package work grants it.
func (p *Probes) startDue(ctx context.Context) (time.Duration, *Behind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for {
		r, ok := p.timers.First()
		if !ok {
			return time.Hour, nil // a probe that ends, or a new probe, wakes the loop
		}
		if wait := r.At().Sub(now); wait > 0 {
			return wait, nil
		}
		if !p.room(now) {
			return p.untilRoom(now), p.blocked(r, now)
		}
		p.timers.Pop()
		if !p.enters(r) {
			p.timers.Put(r, now.Add(podAgain))
			continue
		}
		if r.spec.Exec == nil {
			p.start(ctx, r)
			continue
		}
		p.wg.Add(1) // Run waits also for commands that wait in the scheduler
		var turn bool
		if r.job, turn = p.cfg.Work.Enter(class(r), r.c.ref.UID, &r.pace, func() { p.granted(ctx, r) }); turn {
			p.start(ctx, r)
			p.wg.Done()
		}
	}
}

// class returns the priority class with which a probe's command waits in the scheduler of package work. Probes that a pod needs to become
// ready come before probes of pods that are ready, and before probes that have failed for long.
func class(r *runner) work.Class {
	switch {
	case r.kind == Liveness && r.c.target.Critical:
		return work.Vital
	case r.kind == Startup, r.kind == Readiness && !r.c.ready && !r.failing():
		return work.First
	}
	return work.Periodic
}

// failing reports whether the probe has failed failureThreshold times in a row.
func (r *runner) failing() bool {
	_, failure := thresholds(r.spec)
	return r.last == Failure && r.times >= failure
}

// granted is called when the scheduler of package work lets the command of a probe run.
func (p *Probes) granted(ctx context.Context, r *runner) {
	defer p.wg.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.dropped || ctx.Err() != nil {
		r.job.Cut()
		p.exits(r)
		return
	}
	p.start(ctx, r)
}

// start runs a probe, together with the probes of the same container that are due and would run the same check. It is called with the
// lock held.
func (p *Probes) start(ctx context.Context, r *runner) {
	p.wg.Add(1)
	ctx, r.cancel = context.WithCancel(ctx)
	b := &batch{began: time.Now(), runners: append(make([]*runner, 0, 1), r), target: r.c.target, job: r.job}
	for _, twin := range r.c.runners {
		if twin == nil || twin == r || !identical(twin, r) || !p.leaves(twin, b.began) {
			continue
		}
		twin.cancel = func() {} // canceling the twin only stops its wait for the result; the command goes on for the other probe
		b.runners = append(b.runners, twin)
	}
	p.running = append(p.running, b)
	go p.run(ctx, b)
}

// identical reports whether two probes of one container run the same check with the same timeout, so that one run gives the result of both.
func identical(a, b *runner) bool {
	return timeout(a.spec) == timeout(b.spec) && mergepatch.Equal(&a.spec.ProbeHandler, &b.spec.ProbeHandler)
}

// leaves takes a probe out of the heap if the probe is due, or out of the scheduler. It returns false if it took the probe out of
// neither.
func (p *Probes) leaves(r *runner, now time.Time) bool {
	switch {
	case r.Waits() && (r.held || !r.At().After(now)): // a probe that is held is due
		p.takesOut(r)
		return true
	default:
		return p.givesUp(r)
	}
}

// givesUp takes the command of a probe out of the scheduler. It returns false if the command does not wait there, or was granted just
// now. It is called with the lock held.
func (p *Probes) givesUp(r *runner) bool {
	if r.cancel != nil || r.job == nil || !r.job.Withdraw() {
		return false
	}
	r.job = nil
	p.exits(r)
	p.wg.Done()
	return true
}

// withdraw takes all commands that wait out of the scheduler, so that none of them runs any more.
func (p *Probes) withdraw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.pods {
		for _, c := range e.containers {
			for _, r := range c.runners {
				if r != nil {
					p.givesUp(r)
				}
			}
		}
	}
}
