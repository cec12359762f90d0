package evict

import (
	"maps"
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

const (
	// blindWithin is how long the node delays the choice of a pod to evict because what pods have on the disk is not known well enough. blindStep
	// is the time until it measures them again.
	blindWithin = 10 * time.Second
	blindStep   = 2 * time.Second
	// levelSpan is for how long at least the node remembers how much was available on a disk. containerd measures layers every 10 s.
	levelSpan = 15 * time.Second
)

const whyBlind = ": what pods have on the disk was measured in part only, or long ago; measures again"

// blind reports whether the choice of a pod to evict must wait, because what pods have on the disk that is short could be measured in part
// only, or was measured so long ago that another pod than the first might have caused the shortage. The wait lasts blindWithin at most; after
// that, the node decides with what it knows about each pod.
func (p *Plan) blind(in *Input, c pressure.Crossing, order []claim) bool {
	s := c.Threshold.Signal
	partly := func(o Pod) bool { return o.Usage != nil && o.Usage.unknown(s, in.Layout) != 0 }
	if !slices.ContainsFunc(in.Pods, partly) && !p.hides(in, c, order) {
		delete(p.State.blind, s)
		return false
	}
	b, known := p.State.blind[s]
	if !known {
		b.since = in.Now
	}
	b.last = in.Now
	set(&p.State.blind, s, b)
	if !in.Now.Before(b.since.Add(blindWithin)) {
		return false
	}
	p.For, p.Pause, p.Why = c, ForUsage, Shortage(c)+whyBlind
	p.wake(in.Now.Add(blindStep))
	return true
}

// hides reports whether a pod might have to go before the first one in the order, because it has written into its layers since the runtime
// measured them, before the shortage began. A pod cannot have written more since then than the disk has lost since then. (The usage of the first
// pod alone says nothing: the end of any pod relieves a shortage that has just begun.) A quarter of the loss counts as data of others, such as
// metadata and logs: otherwise the node would also wait if the first pod has just written all that the disk has lost.
func (p *Plan) hides(in *Input, c pressure.Crossing, order []claim) bool {
	s := c.Threshold.Signal
	for i := range order {
		grown := order[i]
		u := grown.pod.Usage
		if i == 0 || u == nil || !u.before(c.Since, s, in.Layout) {
			continue
		}
		written, known := p.State.levels[s].fell(u.LayersAt, c.Observed.Available, in.Now)
		if !known {
			return true
		}
		grown.used = min(grown.used+written-written/4, maxAmount)
		grown.exceeds = grown.exceeds || grown.used > grown.request
		if grown.compare(&order[0]) < 0 {
			return true
		}
	}
	return false
}

// level says how much of a disk was available in the last seconds.
type level struct {
	from    time.Time // of the first measurement
	began   time.Time // of the present span
	highest int64     // in the present span
	before  int64     // highest value of the span before it
}

// note adds the newest measurements to those of the previous State.
func (s *State) note(previous map[pressure.Signal]level, now pressure.Signals, at time.Time) {
	s.levels = maps.Clone(previous)
	for signal := range now {
		seen, measured := now.Read(signal)
		if useOf(signal) != DiskUse || !measured {
			continue
		}
		l, known := s.levels[signal]
		switch {
		case !known:
			l = level{from: at, began: at, highest: seen.Available, before: seen.Available}
		case at.Sub(l.began) >= levelSpan:
			l.began, l.highest, l.before = at, seen.Available, l.highest
		default:
			l.highest = max(l.highest, seen.Available)
		}
		set(&s.levels, signal, l)
	}
}

// fell returns by how much a disk has become fuller since a time. known is false if the measurements do not go back that far.
func (l level) fell(since time.Time, available int64, now time.Time) (amount int64, known bool) {
	if l.from.IsZero() || since.Before(l.from) || now.Sub(since) > levelSpan {
		return 0, false
	}
	return min(max(max(l.highest, l.before)-max(available, 0), 0), maxAmount), true
}
