package differ

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// callsOf compares the requests to the runtime about one container, for each of its instances.
func (d *differ) callsOf(name string) {
	upstream, wherry := d.upstream.instances(name), d.wherry.instances(name)
	for _, attempt := range slices.Sorted(maps.Keys(both(upstream, wherry))) {
		if !d.instance(name, attempt, upstream[attempt], wherry[attempt]) {
			return
		}
	}
}

// instance compares the requests to the runtime about one instance of a container; u or w is nil if that agent did not create the
// instance. It returns false if later instances of the container cannot be compared.
func (d *differ) instance(name string, attempt uint32, u, w *instance) bool {
	about := fmt.Sprintf("calls for %s#%d", name, attempt)
	switch {
	case d.byDecision(name, attempt):
		d.excuse(excuseLate, 1)
		return false
	case u != nil && w != nil:
		d.sameInstance(name, attempt, u, w, about)
		return true
	case d.waitsByDecision(name, attempt, u != nil):
		made := []string{"the pod ended before", "the pod ended before"}
		if u != nil {
			made[0] = strings.Join(u.calls, " ")
		} else {
			made[1] = strings.Join(w.calls, " ")
		}
		l := d.never(name, attempt, u != nil)
		d.add(l.class(), about, made[0], made[1])
		d.waited = min(d.waited, l.from())
		return false
	case d.outlivesByDecision(name, u, w):
		d.excuse(excuseLate, 1)
		return false
	case !d.counts(d.upstream, u, name, attempt) || !d.counts(d.wherry, w, name, attempt):
	case u != nil && !d.atTheEnd(d.upstream, u, name, attempt):
		d.add("calls of "+d.c.kind(name)+": only upstream has "+further(attempt), about, strings.Join(u.calls, " "), "")
		return false
	case w != nil && !d.atTheEnd(d.wherry, w, name, attempt):
		d.add("calls of "+d.c.kind(name)+": only Wherry has "+further(attempt), about, "", strings.Join(w.calls, " "))
		return false
	}
	d.excuse(excuseExtra, 1)
	for t, in := range map[*Trace]*instance{d.upstream: u, d.wherry: w} {
		if in != nil {
			d.extras[extra{t, name}] = in.began
		}
	}
	return true
}

// sameInstance compares the requests to the runtime about an instance that both agents created, except those that depend on the timing.
func (d *differ) sameInstance(name string, attempt uint32, u, w *instance, about string) {
	u, w = d.sameCallsSoFar(u, w)
	without := func(when bool, excuse string, part func(*instance) *instance) {
		if !when {
			return
		}
		before := sameCalls(u.calls, w.calls)
		if u, w = part(u), part(w); !before && sameCalls(u.calls, w.calls) {
			d.excuse(excuse, 1)
		}
	}
	without(d.endsItself(name, attempt, u) || d.endsItself(name, attempt, w) || d.anotherEndsItself(name), excuseOwnEnd, (*instance).unstopped)
	without(d.endsBesideDeletion(), excuseOwnEnd, (*instance).unstopped)
	without(d.outlivesADelay(name), excuseLate, (*instance).unstopped)
	without(d.outlivesAnExtra(name), excuseExtra, (*instance).unstopped)
	without(u.hurried() || w.hurried() || d.endsAtOnce(d.upstream, u) || d.endsAtOnce(d.wherry, w), excuseHurried, func(in *instance) *instance { return in.without("postStart") })
	switch {
	case d.restOfOwnGrace(name, attempt, u.calls, w.calls):
		d.add("calls of "+d.c.kind(name)+", which fails a probe with a grace period of its own: a hook leaves the rest of it only to Wherry", about, strings.Join(u.calls, ", "), strings.Join(w.calls, ", "))
	case !sameCalls(u.calls, w.calls):
		d.list("calls of "+d.c.kind(name)+d.resizedMeanwhile(name, attempt, u)+d.ownGrace(name, u.calls, w.calls), about, u.calls, w.calls)
	case !slices.Equal(u.calls, w.calls):
		d.excuse(excuseSecond, 1)
	}
}

// resizedMeanwhile returns an addition to the class of a difference if the container was resized before this instance started: before the
// first instance, or between the stop of the previous instance and this start. Otherwise it returns "".
func (d *differ) resizedMeanwhile(name string, attempt uint32, u *instance) string {
	from, text := d.upstream.Created, ", resized before its first start"
	if before := d.upstream.instances(name)[attempt-1]; attempt%lifeAttempts > 0 {
		if before == nil || before.stopped.IsZero() {
			return ""
		}
		from, text = before.stopped, ", resized while it restarts"
	}
	for _, a := range d.c.Acts {
		if at := d.upstream.Created.Add(a.At); a.Do == Resize && a.Container == name && at.After(from) && at.Before(u.began.Add(time.Second)) {
			return text
		}
	}
	return ""
}

// ownGrace returns an addition to the class of a difference if upstream's kubelet stopped a container with the grace period of the pod,
// and Wherry with the terminationGracePeriodSeconds of a probe of the container; otherwise "".
func (d *differ) ownGrace(name string, upstream, wherry []string) string {
	for _, x := range slices.Concat(d.c.Spec.InitContainers, d.c.Spec.Containers) {
		for _, p := range []*v1.Probe{x.LivenessProbe, x.StartupProbe} {
			if x.Name == name && p != nil && p.TerminationGracePeriodSeconds != nil && d.c.Spec.TerminationGracePeriodSeconds != nil &&
				slices.Contains(upstream, fmt.Sprintf("stop(%d)", *d.c.Spec.TerminationGracePeriodSeconds)) &&
				slices.Contains(wherry, fmt.Sprintf("stop(%d)", *p.TerminationGracePeriodSeconds)) {
				return ", which fails a probe with a grace period of its own"
			}
		}
	}
	return ""
}

// restOfOwnGrace is like ownGrace, for a container whose preStop hook used a part of the grace period. It reports whether upstream's
// kubelet stopped the container with the rest of the pod's grace period, and Wherry with the rest of the probe's, and nothing else
// differs.
func (d *differ) restOfOwnGrace(name string, attempt uint32, upstream, wherry []string) bool {
	i := slices.Index(upstream, "preStop")
	if pod := d.c.Spec.TerminationGracePeriodSeconds; i < 0 || pod == nil || len(upstream) != len(wherry) || i+1 >= len(upstream) || sameCalls(upstream, wherry) {
		return false
	}
	p := d.c.play(name, attempt)
	for _, x := range slices.Concat(d.c.Spec.InitContainers, d.c.Spec.Containers) {
		for _, probe := range []*v1.Probe{x.LivenessProbe, x.StartupProbe} {
			if x.Name != name || probe == nil || probe.TerminationGracePeriodSeconds == nil {
				continue
			}
			stop := func(grace int64) string { return fmt.Sprintf("stop(%d)", p.rest(grace, upstream)) }
			u, w := slices.Clone(upstream), slices.Clone(wherry)
			u[i+1], w[i+1] = stop(*d.c.Spec.TerminationGracePeriodSeconds), stop(*probe.TerminationGracePeriodSeconds)
			if sameCalls(u, upstream) && sameCalls(w, wherry) {
				return true
			}
		}
	}
	return false
}

// sameNumber reports whether both agents created the same number of instances of a container.
func (d *differ) sameNumber(name string) bool {
	return len(d.upstream.instances(name)) == len(d.wherry.instances(name))
}

func further(attempt uint32) string {
	if attempt%lifeAttempts == 0 {
		return "an instance"
	}
	return "a further instance"
}

var stopCall = regexp.MustCompile(`^stop\((\d+)\)$`)

// sameCalls reports whether two lists of requests are equal. Two stops with timeouts of at least 2 s are equal even if the timeouts
// differ by 1 s, because the rest of a grace period after a preStop hook is rounded.
func sameCalls(u, w []string) bool {
	return slices.EqualFunc(u, w, func(a, b string) bool {
		if a == b {
			return true
		}
		x, y := stopCall.FindStringSubmatch(a), stopCall.FindStringSubmatch(b)
		if x == nil || y == nil {
			return false
		}
		var m, n int
		_, _ = fmt.Sscan(x[1], &m)
		_, _ = fmt.Sscan(y[1], &n)
		return min(m, n) >= 2 && max(m, n)-min(m, n) == 1
	})
}

// apart returns the elements of a and b that are not in a longest common subsequence of both.
func apart(a, b []string) (onlyA, onlyB []string) {
	most := make([][]int, len(a)+1)
	for i := range most {
		most[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				most[i][j] = most[i+1][j+1] + 1
			} else {
				most[i][j] = max(most[i+1][j], most[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			i, j = i+1, j+1
		case most[i+1][j] > most[i][j+1]:
			onlyA = append(onlyA, a[i])
			i++
		default:
			onlyB = append(onlyB, b[j])
			j++
		}
	}
	return append(onlyA, a[i:]...), append(onlyB, b[j:]...)
}

// common returns the elements of a that are also in b.
func common(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(e string) bool { return !slices.Contains(b, e) })
}

// order sorts each run of adjacent main containers in a list of first starts, because the order of their starts has no meaning. It leaves
// out the ephemeral container, which starts when a user wants it; times compares when it does.
func (d *differ) order(starts []string) []string {
	free := func(s string) bool { return d.c.kind(s) == "main" }
	out := slices.DeleteFunc(slices.Clone(starts), func(s string) bool { return d.c.kind(s) == "ephemeral" })
	for i := 0; i < len(out); {
		j := i
		for j < len(out) && free(out[j]) {
			j++
		}
		slices.Sort(out[i:j])
		i = max(j, i+1)
	}
	return out
}
