package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// series compares the values that the API showed over time, for one aspect of the pod such as its phase. It adds a difference if one
// agent reported a value for more than two seconds, and the other agent never reported it or reported it in another order. It also adds
// one if Wherry changed a value and changed it back without a cause (flaps).
func (d *differ) series(aspect, about string, upstream, wherry []span) {
	name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(about, "states of "), "readiness of "), " in the API")
	allU, allW := values(upstream), values(wherry) // a value that an extra instance may have caused still equals the other agent's
	upstream, wherry = d.withoutExtra(d.upstream, name, upstream), d.withoutExtra(d.wherry, name, wherry)
	u, _ := apart(d.lasting(d.upstream, upstream), allW)
	w, _ := apart(d.lasting(d.wherry, wherry), allU)
	for _, v := range d.flaps(upstream, wherry) {
		d.add(aspect+": only Wherry goes for a moment to "+d.generals([]string{v})[0], about, d.timed(upstream), d.timed(wherry))
	}
	d.passing(upstream, wherry, len(u)+len(w))
	if len(u)+len(w) == 0 {
		return
	}
	before := len(u) + len(w)
	u, w = d.withoutChances(aspect, name, u), d.withoutChances(aspect, name, w)
	d.excuse(excuseUnreported, before-len(u)-len(w))
	before = len(u) + len(w)
	u = d.withoutOwnGrace(aspect, name, upstream, u)
	d.excuse(excuseLate, before-len(u)-len(w))
	before = len(u) + len(w)
	u, w = d.withoutOwnEnds(about, name, u, w)
	d.excuse(excuseOwnEnd, before-len(u)-len(w))
	before = len(u) + len(w)
	u, w = d.withoutHurried(aspect, name, u, w)
	d.excuse(excuseHurried, before-len(u)-len(w))
	before = len(u) + len(w)
	u = d.withoutWaits(u, values(wherry))
	w = withoutPulls(w, values(upstream))
	u, w = d.withoutUnknown(name, u, w)
	d.excuse(excuseShown, before-len(u)-len(w))
	if len(u)+len(w) == 0 {
		return
	}
	if w = d.withoutBackOffs(aspect, about, upstream, wherry, w); len(u)+len(w) == 0 {
		return
	}
	if class := d.reportedLater(aspect, about, name, upstream, wherry, u, w); class != "" {
		d.add(class, about, d.timed(upstream), d.timed(wherry))
		return
	}
	if uEnd, wEnd, only := d.inTheEnd(upstream, wherry); only {
		aspect += " while the pod ends"
		before := len(u) + len(w)
		u, w = d.withoutWaits(uEnd, values(wherry)), wEnd
		if len(u)+len(w) == 0 || d.endIsTaken(about, u, w) {
			d.excuse(excuseShown, max(before, len(u)+len(w)))
			return
		}
		if strings.HasPrefix(aspect, "readiness") && d.startsLast(name) {
			d.excuse(excuseLast, len(u)+len(w))
			return
		}
		if class := d.reportedInTheEnd(aspect, name, wherry, u, w); class != "" {
			d.add(class, about, d.timed(upstream), d.timed(wherry))
			return
		}
		if len(u) == 0 && !slices.ContainsFunc(w, func(v string) bool { return !strings.HasSuffix(v, "BackOff") }) {
			aspect = strings.TrimSuffix(aspect, " while the pod ends")
		}
		if len(u) == 0 && (tellsOfEnds(aspect, w) || d.initEndsInTheEnd(aspect, w)) || len(w) == 0 && d.countsEnded(aspect, upstream, u) {
			d.add(aspect+": only Wherry tells of each end at once", about, d.timed(upstream), d.timed(wherry))
			return
		}
	}
	d.add(aspect+": "+only(d.generals(u), d.generals(w)), about, d.timed(upstream), d.timed(wherry))
}

// withoutHurried removes the readiness that only one agent reported of an instance that the other agent stopped within a second of its start. That agent
// may have reported nothing of it.
func (d *differ) withoutHurried(aspect, name string, u, w []string) (ours, theirs []string) {
	if !strings.HasPrefix(aspect, "readiness") {
		return u, w
	}
	without := func(values []string, other *Trace) []string {
		all := other.instances(name)
		return slices.DeleteFunc(slices.Clone(values), func(v string) bool {
			var attempt uint32
			n, _ := fmt.Sscanf(v, "%d ready=", &attempt)
			return n == 1 && all[attempt] != nil && all[attempt].hurried()
		})
	}
	return without(u, d.wherry), without(w, d.upstream)
}

// withoutBackOffs removes waits for a back-off from w (values that only Wherry reported) if such waits are a decided (intended)
// difference, and adds that difference. Other values stay in w, because they have another cause.
func (d *differ) withoutBackOffs(aspect, about string, upstream, wherry []span, w []string) []string {
	waits := slices.DeleteFunc(slices.Clone(w), func(v string) bool { return !strings.HasSuffix(v, "BackOff") })
	class := aspect + ": " + only(nil, d.generals(waits))
	if len(waits) == 0 || !Decided(class) {
		return w
	}
	d.add(class, about, d.timed(upstream), d.timed(wherry))
	return notIn(w, waits)
}

// tellsOfEnds reports whether each value in w says that a container ended, or that it became unready while its pod ended. The values in
// w are those that only Wherry reported.
func tellsOfEnds(aspect string, w []string) bool {
	switch { // readiness probes continue while the pod ends, so all values of readiness count
	case strings.HasPrefix(aspect, "condition ContainersReady"), strings.HasPrefix(aspect, "condition Ready"), strings.HasPrefix(aspect, "readiness"):
		return true
	}
	return !slices.ContainsFunc(w, func(v string) bool { return !strings.HasPrefix(v, "terminated") })
}

// countsEnded reports whether upstream's kubelet reported the values u of a condition about the readiness of containers while it still showed a container as
// running that had ended, as Wherry had told by then: so it may count all containers as ready that are left.
func (d *differ) countsEnded(aspect string, upstream []span, u []string) bool {
	if !strings.HasPrefix(aspect, "condition ContainersReady") && !strings.HasPrefix(aspect, "condition Ready") {
		return false
	}
	return stood(upstream, u, func(s span) bool {
		after := s.since.Sub(d.upstream.Created)
		return slices.ContainsFunc(d.c.containers(), func(name string) bool {
			ours, theirs := d.upstream.shows(name, after), d.wherry.shows(name, after)
			return ours != nil && theirs != nil && ours.RestartCount == theirs.RestartCount && ours.State.Running != nil && theirs.State.Terminated != nil
		})
	})
}

// passing counts as excused the values that only one agent reported and that are not compared, because they lasted less than two seconds
// or began shortly before the deletion. counted is how many values of only one agent are compared.
func (d *differ) passing(upstream, wherry []span, counted int) {
	long := func(spans []span) (out []string) {
		for _, s := range spans {
			if s.lasts >= settled+sends {
				out = append(out, s.value)
			}
		}
		return slices.Compact(out)
	}
	all := func(u, w []string) int {
		x, _ := apart(u, values(wherry))
		y, _ := apart(w, values(upstream))
		return len(x) + len(y)
	}
	lasting := all(long(upstream), long(wherry))
	d.excuse(excusePassing, all(values(upstream), values(wherry))-lasting)
	d.excuse(excuseSoon, lasting-counted)
}

func values(spans []span) (out []string) {
	for _, s := range spans {
		out = append(out, s.value)
	}
	return out
}

// sends is how long Wherry may delay a change of the status to send it together with the next one. A value is compared only if the API had
// it for at least settled plus sends.
const sends = 300 * time.Millisecond

// lasting returns the values that are compared: those that were in the API for more than two seconds. It leaves out values that began
// shortly before the deletion, because the slower agent may not report them. The last values are compared elsewhere (fields).
func (d *differ) lasting(t *Trace, spans []span) (out []string) {
	for _, s := range spans {
		soon := s.since.After(t.Deleted.Add(-max(late, d.behind(t, s.since)))) && s.since.Before(t.Deleted)
		if s.lasts >= settled+sends && !soon && d.early(t, s.since) {
			out = append(out, s.value)
		}
	}
	return slices.Compact(out)
}

func (d *differ) timed(spans []span) string {
	var out []string
	for _, s := range spans {
		out = append(out, fmt.Sprintf("%s (%.1fs)", s.value, s.lasts.Seconds()))
	}
	return strings.Join(out, ", ")
}
