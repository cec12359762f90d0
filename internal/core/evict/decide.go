package evict

import (
	"fmt"
	"maps"
	"time"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Bounds of waiting.
const (
	// endWithin is how long the node waits for the end of an evicted pod after its grace period.
	endWithin = 30 * time.Second
	// backWithin is how long the node waits for what an evicted pod used to be back, after the pod has ended.
	backWithin = 2 * time.Second
	// endsSoon is how little time is left to a pod that ends anyway, so that no other goes for a hard threshold.
	endsSoon = 2 * time.Second
	// waitStep is how often the signals are measured while the node waits for the end of a pod.
	waitStep = 500 * time.Millisecond
	// againAfter is when the node tries again to remove things or to find a pod, if a shortage lasts and no pod could be evicted.
	againAfter = 10 * time.Second
)

// Decide decides about one measurement.
func Decide(in Input) Plan {
	p := Plan{State: State{
		victim: in.Previous.victim, tried: maps.Clone(in.Previous.tried), stuck: maps.Clone(in.Previous.stuck),
	}}
	p.Pressure = pressure.Evaluate(pressure.Input{
		Signals: in.Signals, Thresholds: in.Policy.Thresholds, TransitionPeriod: in.Policy.TransitionPeriod,
		Previous: in.Previous.pressure, Now: in.Now,
	})
	p.State.pressure = p.Pressure.State
	p.wake(p.Pressure.Next)
	p.forget(in.Now)
	if in.Hold || p.waits(&in) {
		return p
	}
	for _, c := range p.Pressure.Met {
		if c.Due && p.relieve(&in, c) {
			return p
		}
	}
	return p
}

// forget drops what was tried for shortages that are over.
func (p *Plan) forget(now time.Time) {
	due := map[pressure.Signal]bool{}
	for _, c := range p.Pressure.Met {
		due[c.Threshold.Signal] = due[c.Threshold.Signal] || c.Due
	}
	over := func(s pressure.Signal, _ time.Time) bool { return !due[s] }
	maps.DeleteFunc(p.State.tried, over)
	maps.DeleteFunc(p.State.stuck, func(s pressure.Signal, at time.Time) bool { return over(s, at) || !now.Before(at.Add(againAfter)) })
}

// waits reports whether the last victim holds up everything else: it has not ended, or what it used is not back.
func (p *Plan) waits(in *Input) bool {
	v := p.State.victim
	if v == nil {
		return false
	}
	was := *v
	v = &was
	if in.VictimEnded && v.endedAt.IsZero() {
		v.endedAt = in.Now
	}
	p.State.victim = v
	until, what := v.at.Add(v.grace+endWithin), "to end"
	back := false
	if !v.endedAt.IsZero() {
		until, what = v.endedAt.Add(backWithin), "to leave what it used"
		seen, measured := in.Signals[v.signal]
		back = measured && seen.Available-v.available >= v.used/2
	}
	if back || !in.Now.Before(until) || !v.endedAt.IsZero() && !p.short(v.signal) {
		p.State.victim = nil
		clear(p.State.tried) // the victim's own containers and images may be removed now
		return false
	}
	p.For, _ = p.crossing(v.signal)
	p.Why = fmt.Sprintf("waits for the evicted pod %s %s", v.name, what)
	p.wake(in.Now.Add(waitStep))
	return true
}

// short reports whether a threshold of the signal is due.
func (p *Plan) short(s pressure.Signal) bool {
	c, ok := p.crossing(s)
	return ok && c.Due
}

// crossing returns the first threshold of a signal that is met, one that is due first.
func (p *Plan) crossing(s pressure.Signal) (found pressure.Crossing, ok bool) {
	for _, c := range p.Pressure.Met {
		if c.Threshold.Signal == s && (!ok || c.Due && !found.Due) {
			found, ok = c, true
		}
	}
	return found, ok
}

// relieve plans the next step for a shortage. It returns false if nothing can be done about it now.
func (p *Plan) relieve(in *Input, c pressure.Crossing) bool {
	s := c.Threshold.Signal
	if at, stuck := p.State.stuck[s]; stuck {
		p.wake(at.Add(againAfter))
		return false
	}
	use := useOf(s)
	if use == DiskUse && in.Busy {
		p.For, p.Why = c, Shortage(c)+": the node removes what it can, or measures what pods use"
		p.wake(in.Now.Add(waitStep))
		return false
	}
	if steps := in.Layout.steps(s); steps != 0 && p.State.tried[s].IsZero() {
		p.For, p.Reclaim = c, steps
		p.Why = fmt.Sprintf("%s: removes %s before a pod has to go", Shortage(c), steps)
		set(&p.State.tried, s, in.Now)
		return true
	}
	if in.Measured&use == 0 {
		p.For, p.Measure = c, use
		p.Why = Shortage(c) + ": measures what pods use"
		return true
	}
	if p.endsAnyway(in, c) {
		return true
	}
	order := rank(in.Pods, s, in.Layout, in.Now)
	if len(order) == 0 {
		set(&p.State.stuck, s, in.Now)
		delete(p.State.tried, s)
		p.For, p.Why = c, Shortage(c)+": no pod can be evicted"
		p.wake(in.Now.Add(againAfter))
		return false
	}
	p.For = c
	p.evict(in, c, order)
	return true
}

// endsAnyway reports whether a pod that uses what is short ends soon, for whatever reason. (This is also how an agent that was
// restarted waits for the victim of its predecessor.)
func (p *Plan) endsAnyway(in *Input, c pressure.Crossing) bool {
	within := endsSoon
	if !c.Threshold.Hard() {
		within = endWithin
	}
	for i := range in.Pods {
		o := &in.Pods[i]
		if o.EndsBy.IsZero() || o.EndsBy.After(in.Now.Add(within)) || !in.Now.Before(o.EndsBy.Add(endWithin)) {
			continue
		}
		if o.Usage == nil || o.Usage.of(c.Threshold.Signal, in.Layout) == 0 {
			continue
		}
		p.For, p.Why = c, fmt.Sprintf("%s: waits for pod %s/%s, which ends anyway", Shortage(c), o.Pod.Namespace, o.Pod.Name)
		p.wake(in.Now.Add(waitStep))
		return true
	}
	return false
}

// evict plans the end of the first pod.
func (p *Plan) evict(in *Input, c pressure.Crossing, order []claim) {
	first := &order[0]
	e := &Eviction{Pod: first.pod.Pod}
	if !c.Threshold.Hard() {
		e.Grace = in.Policy.MaxPodGrace
		if s := e.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
			e.Grace = min(e.Grace, time.Duration(min(*s, maxSeconds))*time.Second)
		}
		e.Grace = max(e.Grace, 0)
	}
	e.Message, e.Annotations = message(first.pod, c)
	e.Why = why(in, c, order)
	p.Evict, p.Why = e, e.Why
	p.State.victim = &victim{
		uid: e.Pod.UID, name: e.Pod.Namespace + "/" + e.Pod.Name, signal: c.Threshold.Signal, at: in.Now, grace: e.Grace,
		available: c.Observed.Available, used: first.used,
	}
	p.wake(in.Now.Add(waitStep))
}

// maxSeconds bounds a grace period so that it fits into a Duration.
const maxSeconds = int64(1) << 32

func set(m *map[pressure.Signal]time.Time, s pressure.Signal, at time.Time) {
	if *m == nil {
		*m = map[pressure.Signal]time.Time{}
	}
	(*m)[s] = at
}

func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
}
