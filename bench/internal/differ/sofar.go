package differ

import (
	"slices"
	"strings"
	"time"
)

// A case in which two things cross is compared a second time, up to the crossing. The whole traces remain the evidence for what
// is excused and decided. Only a difference that began before the crossing counts, and at least as long before it as one agent may be
// later than the other.

// early reports whether something that one side did at that time may be compared.
func (d *differ) early(t *Trace, at time.Time) bool {
	return d.before == never || at.Sub(t.Created) < d.before-late
}

// told reports whether the first event of a key may be compared.
func (d *differ) told(t *Trace, e Event) bool {
	return d.before == never || e.Count > 0 && !e.First.IsZero() && d.early(t, e.First)
}

// counts reports whether it may be compared that only this side has an instance. Upstream's kubelet may start the instance later by
// what it draws upon the back-off.
func (d *differ) counts(t *Trace, in *instance, name string, attempt uint32) bool {
	return in == nil || d.early(t, in.began.Add(d.patience(t, name, attempt)-late))
}

// moreSandboxes reports whether one side made more sandboxes before the crossing than the other side made at all.
func (d *differ) moreSandboxes(t, other *Trace) bool {
	before := &Trace{Calls: slices.DeleteFunc(slices.Clone(t.Calls), func(c Call) bool { return !d.early(t, c.At) })}
	return before.sandboxes() > other.sandboxes()
}

// soFar returns the containers of a list that a side first started before the crossing.
func (d *differ) soFar(t *Trace, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		at, started := t.times()["StartContainer of "+name+"#0"]
		return d.before != never && (!started || at >= d.before)
	})
}

// stopsSoFar returns the containers that the pod's deletion asked to end, in order. A side may have asked before the crossing and
// the other one after it.
func (d *differ) stopsSoFar(t *Trace) []string {
	return slices.DeleteFunc(t.stops(), func(name string) bool {
		in := newest(t.instances(name))
		return d.before != never && (in == nil || in.stopped.IsZero() || !d.early(t, in.stopped))
	})
}

// sameCallsSoFar returns two instances with the calls that one side made before the crossing, and as many calls of the same kind of the
// other side.
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

// verb returns a call without its timeout.
func verb(call string) string {
	v, _, _ := strings.Cut(call, "(")
	return v
}

// timesSoFar returns when a side started each instance and first asked it to end. What it did after the crossing, it had not done
// yet when the two things crossed.
func (d *differ) timesSoFar(t *Trace) map[string]time.Duration {
	all := t.times()
	for k, at := range all {
		all[k] = min(at, d.before)
	}
	return all
}
