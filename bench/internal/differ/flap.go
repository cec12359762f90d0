package differ

import (
	"slices"
	"strings"
	"time"
)

// A value that is in the API for less than two seconds is excused (excusePassing). But if an agent changes a value and changes it back
// without a cause, it flaps. That is a difference, however short the value lasts.

const (
	// causedWithin is the longest time from a cause (an exit, a start, a stop or an act) to the change of a value.
	causedWithin = 3 * time.Second
	// failsWithin is the longest time from a change of a probe's result until the probe reaches its failure or success threshold.
	failsWithin = 5 * time.Second
)

// flaps returns the values that Wherry reported for less than two seconds between two equal values, without a cause. A value does not
// count if upstream's series contains the same change and return, or if the pod's deletion ended the value and upstream's kubelet
// reported it too.
func (d *differ) flaps(upstream, wherry []span) (out []string) {
	for i := 1; i+1 < len(wherry); i++ {
		s := wherry[i]
		if s.lasts >= settled || !d.early(d.wherry, s.since) || strings.HasSuffix(s.value, " ErrImagePull") || // each new pull shows ErrImagePull again
			wherry[i-1].value != wherry[i+1].value || d.caused(d.wherry, s.since) {
			continue
		}
		// ended is true if the pod's deletion ended the value, and upstream's kubelet reported the value too.
		ended := !s.since.Add(s.lasts).Before(d.wherry.Deleted) && slices.Contains(values(upstream), s.value)
		if !ended && !passesBack(upstream, wherry[i-1].value, s.value) {
			out = append(out, s.value)
		}
	}
	return out
}

// passesBack reports whether a series changes from around to value and back to around.
func passesBack(spans []span, around, value string) bool {
	for i := 1; i+1 < len(spans); i++ {
		if spans[i].value == value && spans[i-1].value == around && spans[i+1].value == around {
			return true
		}
	}
	return false
}

// caused reports whether something happened to the pod shortly before the time at, for example an act, an exit, a start or the end of a
// postStart hook.
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
			for _, probe := range []string{"startup", "readiness"} {
				p := d.c.probe(name, probe)
				if p != nil && p.InitialDelaySeconds > 0 && soon(began+time.Duration(p.InitialDelaySeconds)*time.Second, failsWithin) {
					return true // the first results come after the probe's initialDelaySeconds
				}
			}
			if hook := d.c.play(name, attempt%lifeAttempts).Slow["postStart"]; hook > 0 && soon(began+hook, causedWithin) {
				return true // the container is shown as running when its postStart hook has ended
			}
			for _, w := range d.c.play(name, attempt%lifeAttempts).Fails {
				if soon(began+w.From, failsWithin) || soon(began+w.To, failsWithin) {
					return true
				}
			}
		}
	}
	return false
}
