package differ

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// beat is something that happens to a pod: an act, its deadline, an exit, a probe that has reached its failure threshold, a
// start, a restart of the agent. An agent sees it at a time between first and last, counted from the pod's first sandbox.
type beat struct {
	name  string // name of the event, the same on both sides
	from  string // the instance whose start is time zero; empty: the pod
	is    happening
	maybe bool // whether it happens depends on the timing
	lo    time.Duration
	hi    time.Duration
}

// happening is the kind of a beat.
type happening int

// These are the kinds of beats.
const (
	isAct happening = iota
	isDeadline
	isRestart // a restart of the agent
	isStart
	isExit
	isFailure // a probe has reached its failure threshold, so the container must end
	isSuccess // a sidecar's startup probe succeeds
)

const (
	// listed is how long after an exit upstream's kubelet sees it at the latest, because it lists its containers once a second.
	listed = 1500 * time.Millisecond
	// atOnce is how long after an exit Wherry sees it at the latest, because the runtime sends it an event. It is also how long
	// after a user's act either agent sees that.
	atOnce = 250 * time.Millisecond
	// probed is how long after a change of a probe's answer either agent sees it at the latest, because both run each probe once
	// a second.
	probed = 1200 * time.Millisecond
)

// crossed reports whether two things happened to the pod in a different order on the two sides, or so close to each other that an
// agent may see either first. It also returns true if a thing may happen on one side only.
func (d *differ) crossed() bool {
	upstream, wherry := d.beats(d.upstream), d.beats(d.wherry)
	for i, a := range upstream {
		c := find(wherry, a.name)
		if c == nil {
			continue
		}
		if a.maybe || c.maybe {
			return true
		}
		for _, b := range upstream[i+1:] {
			e := find(wherry, b.name)
			if e == nil || !meets(a, b) {
				continue
			}
			if !(a.hi < b.lo && c.hi < e.lo) && !(b.hi < a.lo && e.hi < c.lo) {
				return true
			}
		}
	}
	return false
}

// meets reports whether the order of two things matters. The order of two acts does not matter, nor the order of a start and what
// another container does by itself. Of one instance, only the order of its exit and the failure of its probe matters.
func meets(a, b beat) bool {
	switch {
	case a.from == "" && b.from == "":
		return a.is != isAct || b.is != isAct
	case a.from == "" || b.from == "":
		return true
	case a.from == b.from:
		return a.is == isExit && b.is == isFailure || a.is == isFailure && b.is == isExit
	}
	return a.is != isStart && b.is != isStart
}

func find(all []beat, name string) *beat {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// beats returns what happened to the pod on one side, ordered by time.
func (d *differ) beats(t *Trace) (all []beat) {
	for i, a := range d.c.Acts {
		seen := atOnce
		if a.Do == LoseSandbox {
			seen = d.looks(t)
		}
		all = append(all, beat{name: fmt.Sprint("act ", i), lo: a.At, hi: a.At + seen})
	}
	end := t.Deleted.Sub(t.Created)
	all = append(all, beat{name: "the deletion", lo: end, hi: end + atOnce})
	if passes := d.deadlineOf(t); !passes.IsZero() {
		at := passes.Sub(t.Created)
		lo := at
		if t == d.upstream { // upstream's kubelet checks the deadline once more when it ends a pod, up to a second after it saw the last exit
			lo -= time.Second
		}
		all = append(all, beat{name: "the deadline", is: isDeadline, lo: lo, hi: at + d.looks(t)})
	}
	for i, down := range t.Downs {
		all = append(all, beat{name: fmt.Sprint("restart ", i), is: isRestart, lo: down.From.Sub(t.Created), hi: down.To.Sub(t.Created)})
	}
	for _, name := range d.c.containers() {
		for attempt, in := range t.instances(name) {
			all = append(all, d.beatsOf(t, name, attempt, in)...)
		}
	}
	slices.SortFunc(all, func(a, b beat) int { return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.name, b.name)) })
	return all
}

// beatsOf returns what happened to one instance of a container, as far as the instance got.
func (d *differ) beatsOf(t *Trace, name string, attempt uint32, in *instance) (all []beat) {
	p := d.c.play(name, attempt%lifeAttempts)
	began, from := in.began.Sub(t.Created), fmt.Sprintf("%s#%d", name, attempt)
	all = append(all, beat{name: "start of " + from, from: from, is: isStart, lo: began, hi: began})
	add := func(what string, is happening, at interval, maybe bool) {
		at.first, at.last = at.first+began, at.last+began
		if in.stopped.IsZero() || in.stopped.Sub(t.Created)+at.last-at.first > at.first {
			all = append(all, beat{name: what + " of " + from, from: from, is: is, maybe: maybe, lo: at.first, hi: at.last})
		}
	}
	if p.StartError != "" {
		return all
	}
	if p.Exits {
		add("exit", isExit, interval{p.Runs, p.Runs + d.looks(t)}, false)
	}
	for _, probe := range []string{"startup", "liveness"} {
		if at, maybe := d.c.kills(name, probe, p); at.first < never {
			if p.Term == TermSlow { // until the old instance has ended, an event may concern it or the next instance
				at.last += slowEnd
			}
			add("failure of the "+probe+" probe", isFailure, at, maybe)
		}
	}
	if d.c.kind(name) == "sidecar" && d.c.probe(name, "startup") != nil { // the next container waits for this
		if at := d.c.starts(name, p); at.first < never && (!p.Exits || at.first < p.Runs) {
			add("success of the startup probe", isSuccess, at, false)
		}
	}
	return all
}

// looks returns how long after an exit an agent sees it at the latest.
func (d *differ) looks(t *Trace) time.Duration {
	if t == d.upstream {
		return listed
	}
	return atOnce
}
