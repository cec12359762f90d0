package differ

import (
	"slices"
	"strings"
	"time"
)

// From a Crossing on, the two agents may see events in a different order. So a case with a Crossing is compared twice: first its complete
// traces, then only the time before the Crossing. The first comparison says which differences are excused and decided. In the second one,
// a difference counts only if it began at least 5 s (late) before the Crossing, because one agent may do the same thing that much later
// than the other.

// early reports whether the comparison uses what the agent of the trace did at the time at. If only the time before a Crossing is
// compared, that is the time up to 5 s (late) before the Crossing; otherwise any time.
func (d *differ) early(t *Trace, at time.Time) bool {
	return d.before == never || at.Sub(t.Created) < d.before-late
}

// told reports whether the comparison uses the events in e: in a comparison up to a Crossing, the first of them must have come early
// enough.
func (d *differ) told(t *Trace, e Event) bool {
	return d.before == never || e.Count > 0 && !e.First.IsZero() && d.early(t, e.First)
}

// counts reports whether the instance in, which only the agent of the trace created, is a difference. It is not one if the other agent
// might have created the same instance only after the Crossing: upstream's kubelet adds a random time to each back-off.
func (d *differ) counts(t *Trace, in *instance, name string, attempt uint32) bool {
	return in == nil || d.early(t, in.began.Add(d.patience(t, name, attempt)-late))
}

// moreSandboxes reports whether the agent of t created more sandboxes before the Crossing than the other agent created in total.
func (d *differ) moreSandboxes(t, other *Trace) bool {
	before := &Trace{Calls: slices.DeleteFunc(slices.Clone(t.Calls), func(c Call) bool { return !d.early(t, c.At) })}
	return before.sandboxes() > other.sandboxes()
}

// soFar returns those of the named containers that the agent of the trace first started before the Crossing.
func (d *differ) soFar(t *Trace, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		at, started := t.times()["StartContainer of "+name+"#0"]
		return d.before != never && (!started || at >= d.before)
	})
}

// stopsSoFar returns the containers that the agent stopped because of the pod's deletion, in order. In a comparison up to a Crossing, it
// leaves out those that the agent stopped too late.
func (d *differ) stopsSoFar(t *Trace) []string {
	return slices.DeleteFunc(t.stops(), func(name string) bool {
		in := newest(t.instances(name))
		return d.before != never && (in == nil || in.stopped.IsZero() || !d.early(t, in.stopped))
	})
}

// sameCallsSoFar reduces the calls for an instance to those that count before the Crossing. Of each kind of call it keeps the same number
// for both agents: the larger of the numbers of calls that the two agents made before the Crossing. So if one agent makes the same call
// only after the Crossing, this is no difference.
func (d *differ) sameCallsSoFar(u, w *instance) (*instance, *instance) {
	if d.before == never {
		return u, w
	}
	most := map[string]int{}
	for t, in := range map[*Trace]*instance{d.upstream: u, d.wherry: w} {
		n := map[string]int{}
		for i, c := range in.calls {
			if d.early(t, in.at[i]) {
				n[verb(c)]++
			}
		}
		for v := range n {
			most[v] = max(most[v], n[v])
		}
	}
	first := func(in *instance) *instance {
		n := map[string]int{}
		return in.only(func(i int) bool {
			v := verb(in.calls[i])
			n[v]++
			return n[v] <= most[v]
		})
	}
	return first(u), first(w)
}

// verb returns the kind of a call: the call without its timeout.
func verb(call string) string {
	v, _, _ := strings.Cut(call, "(")
	return v
}

// timesSoFar returns when the agent of the trace started each instance and first stopped it. Times after the Crossing are replaced by the
// time of the Crossing.
func (d *differ) timesSoFar(t *Trace) map[string]time.Duration {
	all := t.times()
	for k, at := range all {
		all[k] = min(at, d.before)
	}
	return all
}
