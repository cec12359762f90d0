package differ

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// beat is something that happens to a pod: an act, its deadline, an exit, the time when a probe begins or ceases to fail, a start.
// An agent sees it between two times since the pod's first sandbox.
type beat struct {
	name  string // name of the event, the same on both sides
	from  string // the instance from whose start its time counts; empty: the pod
	start bool
	lo    time.Duration
	hi    time.Duration
}

const (
	// listed is how long after an exit upstream's kubelet may see it: it lists its containers once a second.
	listed = 1500 * time.Millisecond
	// atOnce is how long after an exit Wherry may see it, because the runtime sends it an event, and how long after an act of a
	// user either agent may see that.
	atOnce = 250 * time.Millisecond
	// probed is how long after a probe's answer changes either may see it: both run each probe once a second.
	probed = 1200 * time.Millisecond
)

// crossed reports whether two things happened to the pod on the two sides in another order, or so close to each other that an agent may
// see either first.
func (d *differ) crossed() bool {
	upstream, wherry := d.beats(d.upstream), d.beats(d.wherry)
	for i, a := range upstream {
		for _, b := range upstream[i+1:] {
			c, e := find(wherry, a.name), find(wherry, b.name)
			if c == nil || e == nil || !meets(a, b) {
				continue
			}
			if !(a.hi < b.lo && c.hi < e.lo) && !(b.hi < a.lo && e.hi < c.lo) {
				return true
			}
		}
	}
	return false
}

// meets reports whether the order of two things matters: not that of acts, nor of what one instance does, nor of a start and what another
// container does by itself.
func meets(a, b beat) bool {
	switch {
	case a.from == "" && b.from == "":
		return a.name == deadline || b.name == deadline
	case a.from == "" || b.from == "":
		return true
	}
	return a.from != b.from && !a.start && !b.start
}

const deadline = "the deadline"

func find(all []beat, name string) *beat {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// beats returns what happened to the pod on one side, in the order of their times.
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
		all = append(all, beat{name: deadline, lo: at, hi: at + d.looks(t)})
	}
	for _, name := range d.c.containers() {
		for attempt, in := range t.instances(name) {
			all = append(all, d.beatsOf(t, name, attempt, in)...)
		}
	}
	slices.SortFunc(all, func(a, b beat) int { return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.name, b.name)) })
	return all
}

// beatsOf returns those of one instance of a container, as far as it came.
func (d *differ) beatsOf(t *Trace, name string, attempt uint32, in *instance) (all []beat) {
	p := d.c.play(name, attempt%lifeAttempts)
	began, from := in.began.Sub(t.Created), fmt.Sprintf("%s#%d", name, attempt)
	all = append(all, beat{name: "start of " + from, from: from, start: true, lo: began, hi: began})
	add := func(what string, after, seen time.Duration) {
		at := began + after
		if in.stopped.IsZero() || in.stopped.Sub(t.Created)+seen > at {
			all = append(all, beat{name: what + " of " + from, from: from, lo: at, hi: at + seen})
		}
	}
	if p.Exits && p.StartError == "" {
		add("exit", p.Runs, d.looks(t))
	}
	for _, probe := range []string{"startup", "liveness"} {
		w, fails := p.Fails[probe]
		if fails && w.From > 0 && (!p.Exits || w.From < p.Runs) {
			add(probe+" begins to fail", w.From, probed)
		}
		if fails && w.To > 0 && (!p.Exits || w.To < p.Runs) {
			add(probe+" ceases to fail", w.To, probed)
		}
	}
	return all
}

// looks returns how long after an exit an agent may see it.
func (d *differ) looks(t *Trace) time.Duration {
	if t == d.upstream {
		return listed
	}
	return atOnce
}
