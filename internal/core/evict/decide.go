package evict

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// These constants bound how long the node waits.
const (
	// endWithin is how long the node waits for the end of an evicted pod after the pod's grace period.
	endWithin = 30 * time.Second
	// backWithin is how long the node waits, after an evicted pod has ended, until the pod's memory or disk space is available
	// again. It waits as long after it has removed containers and images: a runtime may delete their files after its answer
	// (containerd's garbage collection does).
	backWithin = 2 * time.Second
	// endsSoon is how long the node waits for pods that are already ending. If such pods will end within this time and free enough, no
	// other pod is evicted for a hard threshold.
	endsSoon = 2 * time.Second
	// waitStep is the period of measurements while the node waits for the end of a pod, and waitMemory while it does so because memory is
	// short: other pods may eat memory meanwhile.
	waitStep   = 500 * time.Millisecond
	waitMemory = 100 * time.Millisecond
	// againAfter is how long the node waits after it has found no pod to evict. If the shortage continues, it then tries again to
	// remove containers and images, and to find a pod. For a disk the wait doubles each time up to againMost, unless something was removed:
	// a try reads all files of all pods, and a node with DiskPressure gets no new pod that could be evicted.
	againAfter = 10 * time.Second
	againMost  = 5 * time.Minute
	// mostAttempts is how often the node tries to remove containers and images before it evicts a pod, if each attempt runs out of
	// time. The caller limits each removal to a minute.
	mostAttempts = 5
)

// Decide returns what the node has to do after one measurement.
func Decide(in Input) Plan {
	p := decide(in)
	was := in.Previous.Victim()
	p.Forget = p.Evict != nil || was != "" && was != p.State.Victim() || !p.shortOf(DiskUse)
	return p
}

func decide(in Input) Plan {
	p := Plan{State: State{
		victim: in.Previous.victim, tried: maps.Clone(in.Previous.tried), stuck: maps.Clone(in.Previous.stuck), blind: maps.Clone(in.Previous.blind),
	}}
	p.Pressure = pressure.Evaluate(pressure.Input{
		Signals: in.Signals, Thresholds: in.Policy.Thresholds, TransitionPeriod: in.Policy.TransitionPeriod,
		Previous: in.Previous.pressure, Now: in.Now,
	})
	p.State.pressure = p.Pressure.State
	p.wake(p.Pressure.Next)
	p.forget()
	p.State.note(in.Previous.levels, in.Signals, in.Now)
	switch p.State.held = in.Hold; {
	case in.Hold && !in.Spare:
		return p
	case in.Previous.held && !in.Hold: // what was tried without the pods says nothing about what can be done with them
		p.State.tried, p.State.stuck = nil, nil
	}
	waits := p.waits(&in)
	if waits && !slices.ContainsFunc(p.Pressure.Met, p.presses) {
		return p
	}
	waited := p
	for _, c := range p.Pressure.Met {
		if c.Due && (!waits || p.presses(c)) && p.relieve(&in, c) {
			return p
		}
	}
	switch {
	case waits:
		p.For, p.Pause, p.Why = waited.For, waited.Pause, waited.Why
	case p.For.Threshold.Signal == "" && len(p.Stuck) > 0:
		p.Why = NoPod(p.Stuck[0])
	}
	return p
}

// presses reports whether a threshold must be relieved although the pod that was evicted last has not ended: the threshold is hard and due, and that
// pod was evicted for a soft threshold. The grace period of such a pod may be long. The node then evicts it again, without a grace period, or another
// pod. A hard threshold of memory waits for no pod that was evicted for anything else either, since memory is used up in less time than a pod takes to
// end.
func (p *Plan) presses(c pressure.Crossing) bool {
	v := p.State.victim
	if !c.Due || !c.Threshold.Hard() {
		return false
	}
	return v.soft && v.endedAt.IsZero() || useOf(c.Threshold.Signal) == MemoryUse && useOf(v.signal) != MemoryUse
}

// shortOf reports whether a threshold of a kind of use is due.
func (p *Plan) shortOf(use Use) bool {
	return slices.ContainsFunc(p.Pressure.Met, func(c pressure.Crossing) bool { return c.Due && useOf(c.Threshold.Signal) == use })
}

// forget deletes what State remembers about shortages that are over.
func (p *Plan) forget() {
	due := map[pressure.Signal]bool{}
	for _, c := range p.Pressure.Met {
		due[c.Threshold.Signal] = due[c.Threshold.Signal] || c.Due
	}
	maps.DeleteFunc(p.State.tried, func(s pressure.Signal, _ attempt) bool { return !due[s] })
	maps.DeleteFunc(p.State.blind, func(s pressure.Signal, _ blindness) bool { return !due[s] })
	maps.DeleteFunc(p.State.stuck, func(s pressure.Signal, _ dead) bool { return !due[s] })
}

// waits reports whether the node still waits for the last evicted pod, because the pod has not ended, or because the memory or disk space
// that it used is not available again.
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
	if !v.endedAt.IsZero() {
		until, what = v.endedAt.Add(backWithin), "to free what it used"
	}
	if v.back(in.Signals) || !in.Now.Before(until) || !v.endedAt.IsZero() && !p.short(v.signal) {
		p.State.victim = v.before
		clear(p.State.tried) // the evicted pod's containers and images may be removed now
		next := *in
		next.VictimEnded = false // VictimEnded says nothing about the pod that was evicted before this one
		return p.waits(&next)
	}
	p.For, _ = p.crossing(v.signal)
	p.Pause = ForEvicted
	p.Why = fmt.Sprintf("waits for the evicted pod %s %s", v.name, what)
	p.wake(in.Now.Add(stepOf(v.signal)))
	return true
}

// back reports whether an evicted pod has ended and has freed at least half of what it used. It returns false if the pod used nothing, or
// could not be measured completely. A pod that was killed at once need not have ended: its memory is available again once its containers are
// dead, and if more is missing then, the node does not wait until the pod's network and volumes are gone.
func (v *victim) back(now pressure.Signals) bool {
	seen, measured := now.Read(v.signal)
	return (v.atOnce || !v.endedAt.IsZero()) && measured && v.used > 0 && seen.Available-v.available >= v.used-v.used/2
}

// short reports whether a threshold of the signal is met and its grace period is over.
func (p *Plan) short(s pressure.Signal) bool {
	c, ok := p.crossing(s)
	return ok && c.Due
}

// crossing returns the first threshold of a signal that is met. A threshold that is due comes before one that is only met.
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
	if end, stuck := p.State.stuck[s]; stuck && in.Now.Before(end.at.Add(end.wait)) {
		p.Stuck = append(p.Stuck, c)
		p.wake(end.at.Add(end.wait))
		return false
	}
	use := useOf(s)
	if use == DiskUse && (in.Busy || in.Layout.Unknown) {
		p.For, p.Pause, p.Why = c, ForWork, Shortage(c)+": the node removes what it can, or measures what pods use"
		if in.Layout.Unknown {
			p.Pause, p.Why = ForLayout, Shortage(c)+": the runtime has not said yet on which disk it keeps images and layers"
		}
		p.wake(in.Now.Add(waitStep))
		return false
	}
	if steps, last := in.Layout.steps(s), p.State.tried[s]; steps != 0 && last.goesOn(in.Tried, c.Observed.Available) {
		p.For, p.Pause, p.Reclaim = c, NoPause, steps
		p.Why = fmt.Sprintf("%s: removes %s before a pod has to go", Shortage(c), steps)
		set(&p.State.tried, s, attempt{times: last.times + 1, available: c.Observed.Available})
		return true
	}
	if use == DiskUse && in.Now.Before(in.Removed.Add(backWithin)) {
		p.For, p.Pause, p.Why = c, ForRemoved, Shortage(c)+": waits for the runtime to delete the files of what was removed"
		p.wake(in.Now.Add(waitStep))
		return false
	}
	if in.Hold {
		p.giveUp(in, c)
		return false
	}
	if in.Measured&use == 0 {
		if again := p.State.blind[s].last.Add(blindStep); in.Now.Before(again) {
			p.For, p.Pause, p.Why = c, ForUsage, Shortage(c)+whyBlind
			p.wake(again)
			return false
		}
		p.For, p.Pause, p.Measure = c, NoPause, use
		p.Why = Shortage(c) + ": measures what pods use"
		return true
	}
	if p.endsAnyway(in, c) {
		return true
	}
	order := rank(in.Pods, s, in.Layout, in.Now)
	if p.blind(in, c, order) {
		return false
	}
	if len(order) == 0 {
		p.giveUp(in, c)
		return false
	}
	p.For, p.Pause = c, NoPause
	p.evict(in, c, order)
	return true
}

// giveUp records that no pod can be evicted for a shortage, and how long the node waits until it tries again.
func (p *Plan) giveUp(in *Input, c pressure.Crossing) {
	s := c.Threshold.Signal
	end := dead{at: in.Now, wait: againAfter}
	if t := in.Tried; t != nil {
		end.removed = t.Containers + t.Images
	}
	if last, again := p.State.stuck[s]; again && useOf(s) == DiskUse && end.removed == last.removed {
		end.wait = min(2*last.wait, againMost)
	}
	set(&p.State.stuck, s, end)
	delete(p.State.tried, s)
	p.Stuck = append(p.Stuck, c)
	p.wake(in.Now.Add(end.wait))
}

// goesOn reports whether the node should remove containers and images (again) before it evicts a pod: it has not tried yet, or the last
// attempt ran out of time but freed something. If an attempt freed nothing, or the disk fills faster than it is freed, the node evicts a
// pod without another attempt.
func (a attempt) goesOn(last *Tried, available int64) bool {
	switch {
	case a.times == 0:
		return true
	case last == nil || !last.More || a.times >= mostAttempts:
		return false
	}
	return available > a.available || available == a.available && last.Images > 0
}

// endsAnyway reports whether the node can wait for pods that are already ending, for any reason: they end soon, and together they use at
// least half of the missing amount. (In this way a restarted agent also waits for the pod that the earlier agent evicted.)
func (p *Plan) endsAnyway(in *Input, c pressure.Crossing) bool {
	within := endsSoon
	if !c.Threshold.Hard() {
		within = endWithin
	}
	var first *Pod
	brings := int64(0)
	for i := range in.Pods {
		o := &in.Pods[i]
		if o.Usage == nil || o.EndsBy.IsZero() || o.EndsBy.After(in.Now.Add(within)) || !in.Now.Before(o.EndsBy.Add(endWithin)) {
			continue
		}
		used := o.Usage.of(c.Threshold.Signal, in.Layout)
		if brings = min(brings+used, maxAmount); used > 0 && first == nil {
			first = o
		}
	}
	if first == nil || brings < missing(c)/2 {
		return false
	}
	p.For, p.Pause = c, ForEnding
	p.Why = fmt.Sprintf("%s: waits for pod %s/%s, which ends anyway", Shortage(c), first.Pod.Namespace, first.Pod.Name)
	p.wake(in.Now.Add(stepOf(c.Threshold.Signal)))
	return true
}

// missing returns how much more must become available until a threshold is no longer met.
func missing(c pressure.Crossing) int64 {
	available := max(c.Observed.Available, 0)
	return min(max(c.Threshold.Wanted(c.Observed.Capacity)-available, 0), maxAmount)
}

// evict plans the eviction of the first pod in the order that rank returns.
func (p *Plan) evict(in *Input, c pressure.Crossing, order []claim) {
	first := &order[0]
	e := &Eviction{Pod: first.pod.Pod}
	if !c.Threshold.Hard() {
		e.Grace = in.Policy.MaxPodGrace
		if s := e.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
			e.Grace = min(e.Grace, pod.Seconds(*s))
		}
		e.Grace = max(e.Grace, 0)
	}
	e.AtOnce = c.Threshold.Hard() && useOf(c.Threshold.Signal) == MemoryUse
	e.Message, e.Annotations = message(first.pod, c)
	e.Why = why(in, c, order)
	p.Evict, p.Why = e, e.Why
	delete(p.State.stuck, c.Threshold.Signal)
	if v := p.State.victim; v != nil && v.uid == e.Pod.UID {
		p.State.victim = nil // the same pod is evicted again, now without a grace period; this replaces its first eviction
	}
	p.State.victim = &victim{
		uid: e.Pod.UID, name: e.Pod.Namespace + "/" + e.Pod.Name, signal: c.Threshold.Signal, at: in.Now, grace: e.Grace,
		before: p.State.victim, soft: !c.Threshold.Hard(), atOnce: e.AtOnce, available: c.Observed.Available, used: first.used,
	}
	if first.partly { // the pod's end frees more than what was found, so half of that does not show that all of it is available again
		p.State.victim.used = 0
	}
	p.wake(in.Now.Add(stepOf(c.Threshold.Signal)))
}

// stepOf returns the period of measurements while the node waits for the end of a pod because of a shortage of a signal.
func stepOf(s pressure.Signal) time.Duration {
	if useOf(s) == MemoryUse {
		return waitMemory
	}
	return waitStep
}

func set[T any](m *map[pressure.Signal]T, s pressure.Signal, v T) {
	if *m == nil {
		*m = map[pressure.Signal]T{}
	}
	(*m)[s] = v
}

func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
}
