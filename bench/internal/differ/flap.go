package differ

import (
	"slices"
	"strings"
	"time"
)

// A value that the API has for less than two seconds is no difference: see excusePassing. But an agent that changes a value and
// changes it back without a cause flaps, however short that takes.

const (
	// causedWithin is how long before a change its cause may be: an exit, a start, a stop, an act.
	causedWithin = 3 * time.Second
	// failsWithin is how long after a change of a probe's answer the probe reaches its failure or success threshold at the
	// latest.
	failsWithin = 5 * time.Second
)

// flaps returns the values that Wherry's series has for less than two seconds between two equal values, without a cause, if upstream's
// series does not do the same. A value that the pod's deletion ends is none, if upstream's series has it too.
func (d *differ) flaps(upstream, wherry []span) (out []string) {
	for i := 1; i+1 < len(wherry); i++ {
		s := wherry[i]
		if s.lasts >= settled || !d.early(d.wherry, s.since) || strings.HasSuffix(s.value, " ErrImagePull") || // each further pull shows ErrImagePull again
			wherry[i-1].value != wherry[i+1].value || d.caused(d.wherry, s.since) {
			continue
		}
		ended := !s.since.Add(s.lasts).Before(d.wherry.Deleted) && slices.Contains(values(upstream), s.value) // by the deletion, on both sides
		if !ended && !passesBack(upstream, wherry[i-1].value, s.value) {
			out = append(out, s.value)
		}
	}
	return out
}

// passesBack reports whether a series leaves another value for this one and then returns to it.
func passesBack(spans []span, around, value string) bool {
	for i := 1; i+1 < len(spans); i++ {
		if spans[i].value == value && spans[i-1].value == around && spans[i+1].value == around {
			return true
		}
	}
	return false
}

// caused reports whether something happened to the pod shortly before.
func (d *differ) caused(t *Trace, at time.Time) bool {
	since := at.Sub(t.Created)
	for _, c := range t.Calls {
		if c.Verb != "ExecSync" && !c.At.After(at) && at.Sub(c.At) < causedWithin {
			return true
		}
	}
	soon := func(what, within time.Duration) bool { return what <= since && since-what < within }
	for _, b := range d.beats(t) {
		if soon(b.lo, causedWithin) {
			return true
		}
	}
	for _, name := range d.c.containers() {
		for attempt, in := range t.instances(name) {
			began := in.began.Sub(t.Created)
			for _, w := range d.c.play(name, attempt%lifeAttempts).Fails {
				if soon(began+w.From, failsWithin) || soon(began+w.To, failsWithin) {
					return true
				}
			}
		}
	}
	return false
}
