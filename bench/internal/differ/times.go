package differ

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// delay is a start or a stop of a container instance that one agent made later than the other.
type delay struct {
	d                *differ
	what             string // the call and the instance, such as "StartContainer of main-0#2"
	name             string
	attempt          uint32
	start            bool
	upstream, wherry time.Duration
}

func (l *delay) class() string {
	who := "upstream is later"
	if l.wherry > l.upstream {
		who = "Wherry is later"
	}
	what := l.d.general(strings.TrimSuffix(l.what, fmt.Sprintf("#%d", l.attempt)))
	again := l.start && l.attempt%lifeAttempts > 0
	switch {
	case again && l.d.comesBack() && min(l.upstream, l.wherry) > l.d.written():
		what += ", of a static pod whose manifest comes back"
	case again && l.upstream > l.wherry && l.definitionChanged():
		what += " after " + l.d.end(l.name, l.attempt-1) + ", whose definition is changed"
	case again && l.d.c.Kind == Restart:
		what += " after " + l.d.end(l.name, l.attempt-1) + ", after a restart of the agents"
	case again:
		what += fmt.Sprintf("#%d after %s", l.attempt%lifeAttempts, l.d.end(l.name, l.attempt-1))
		if l.attempt%lifeAttempts > 1 && l.d.end(l.name, l.attempt-2) == "a stop" && l.d.end(l.name, l.attempt-1) != "a stop" {
			what += ", which followed a stop"
		}
	default:
		what += fmt.Sprintf("#%d", l.attempt%lifeAttempts)
	}
	if l.attempt == lifeAttempts || l.start && l.attempt == 0 && l.d.c.Kind == Static && l.d.written() > 0 && min(l.upstream, l.wherry) >= l.d.written() {
		what += ", in the next life of a static pod"
	}
	if !l.start && l.d.hasPostStart() {
		what += ", in a pod with a postStart hook"
	}
	return "time of " + what + ": " + who
}

// from returns when the wait before a late restart began: when the previous instance ended on either agent. For a stop, and for a first
// start, it returns the time at which the faster agent made the call.
func (l *delay) from() time.Duration {
	from := min(l.upstream, l.wherry)
	if !l.start || l.attempt%lifeAttempts == 0 {
		return from
	}
	for _, t := range []*Trace{l.d.upstream, l.d.wherry} {
		before := t.instances(l.name)[l.attempt-1]
		if before == nil {
			continue
		}
		over := before.began
		if p := l.d.c.play(l.name, (l.attempt-1)%lifeAttempts); p.Exits {
			over = over.Add(p.Runs)
		}
		if !before.stopped.IsZero() && (before.stopped.Before(over) || over.Equal(before.began)) {
			over = before.stopped
		}
		from = min(from, over.Sub(t.Created))
	}
	return from
}

func (d *differ) hasPostStart() bool {
	return slices.ContainsFunc(slices.Concat(d.c.Spec.InitContainers, d.c.Spec.Containers), func(x v1.Container) bool {
		return x.Lifecycle != nil && x.Lifecycle.PostStart != nil
	})
}

// definitionChanged reports whether the image or the resources of the container were changed between its first start and the start that is
// late.
func (l *delay) definitionChanged() bool {
	first := min(l.d.upstream.firstStart(l.name), l.d.wherry.firstStart(l.name))
	return slices.ContainsFunc(l.d.c.Acts, func(a Act) bool {
		return (a.Do == SetImage || a.Do == Resize) && a.Container == l.name && a.At >= first && a.At < min(l.upstream, l.wherry)
	})
}

// firstStart returns when the agent of the trace first started the container; never (the constant) if it did not.
func (t *Trace) firstStart(name string) time.Duration {
	for _, c := range t.Calls {
		if c.Verb == "StartContainer" && c.Container == name {
			return c.At.Sub(t.Created)
		}
	}
	return never
}

// byDecision reports whether an instance is the late start, or comes after it, and the delay is a decided (intended) difference.
func (d *differ) byDecision(name string, attempt uint32) bool {
	if d.late != nil && d.late.start && d.late.attempt >= lifeAttempts && attempt >= lifeAttempts && Decided(d.late.class()) {
		return true // the next life of the static pod is late as a whole
	}
	for _, l := range []*delay{d.late, d.lates[name]} {
		if l != nil && l.start && l.name == name && attempt >= l.attempt && Decided(l.class()) {
			return true
		}
	}
	return false
}

// never returns a delay for a container instance that one agent did not start: Wherry if wherry is true, otherwise upstream's kubelet. It
// pretends that this agent started the instance 1 ns after the other agent, so that the class of the delay says that this agent is later.
func (d *differ) never(name string, attempt uint32, wherry bool) *delay {
	l := &delay{d: d, what: fmt.Sprintf("StartContainer of %s#%d", name, attempt), name: name, attempt: attempt, start: true}
	if wherry {
		l.upstream = d.upstream.instances(name)[attempt].began.Sub(d.upstream.Created)
		l.wherry = l.upstream + 1
	} else {
		l.wherry = d.wherry.instances(name)[attempt].began.Sub(d.wherry.Created)
		l.upstream = l.wherry + 1
	}
	return l
}

// waitsByDecision reports whether one agent (Wherry if wherry is true, otherwise upstream's kubelet) did not start the instance because
// the pod ended during a wait that is a decided (intended) difference.
func (d *differ) waitsByDecision(name string, attempt uint32, wherry bool) bool {
	if attempt%lifeAttempts == 0 || !Decided(d.never(name, attempt, wherry).class()) {
		return false
	}
	waiting := d.upstream
	if wherry {
		waiting = d.wherry
	}
	before := waiting.instances(name)[attempt-1]
	if before == nil {
		return false
	}
	n := attempt % lifeAttempts
	over := before.began.Add(d.c.play(name, n-1).Runs)
	if before.stopped.After(over) {
		over = before.stopped
	}
	return d.lifeEnds(waiting, over).Sub(over) < backOff<<min(max(n, 2)-2, 4)+2*late
}

// backOff is the wait before the second restart of a container. It doubles with each further restart.
const backOff = 10 * time.Second

// times returns the first start or stop that one agent made too late, which makes everything after it late too; nil: there is none. It sets
// lates.
func (d *differ) times() *delay {
	d.lates = map[string]*delay{}
	upstream, wherry := d.timesSoFar(d.upstream), d.timesSoFar(d.wherry)
	var first *delay
	for _, k := range slices.Sorted(maps.Keys(upstream)) {
		u := upstream[k]
		w, ok := wherry[k]
		if !ok {
			continue // callsOf reports calls that only one agent made
		}
		verb, rest, _ := strings.Cut(k, " of ")
		name, number, _ := strings.Cut(rest, "#")
		l := &delay{d: d, what: k, name: name, start: verb == "StartContainer", upstream: u, wherry: w}
		_, _ = fmt.Sscan(number, &l.attempt)
		switch {
		case (u - w).Abs() <= settled:
			continue
		case (u - w).Abs() <= late:
			d.excuse(excuseTime, 1)
			continue
		case u > w && u-w <= d.allowance(l):
			d.excuse(excuseDraw, 1)
			continue
		case !l.start && (d.anotherEndsItself(name) || d.endsItself(name, l.attempt, d.upstream.instances(name)[l.attempt]) || d.endsItself(name, l.attempt, d.wherry.instances(name)[l.attempt])):
			d.excuse(excuseOwnEnd, 1)
			continue
		case !l.start && d.outlivesAnExtra(name):
			d.excuse(excuseExtra, 1)
			continue
		}
		if first == nil || min(u, w) < min(first.upstream, first.wherry) {
			first = l
		}
		if of := d.lates[name]; l.start && (of == nil || l.attempt < of.attempt) {
			d.lates[name] = l
		}
	}
	return first
}

// allowance returns how much later than Wherry upstream's kubelet may make a start or a stop. The kubelet lengthens each back-off by a
// random time of up to a half, and the delays of all restarts add up.
func (d *differ) allowance(l *delay) time.Duration {
	all := time.Duration(0)
	last := l.attempt
	if l.start {
		all, last = d.draw(d.upstream, l.name, l.attempt)/3+time.Second, last-1
	}
	if l.attempt%lifeAttempts == 0 && l.start {
		return 0
	}
	return all + d.lag(l.name, last)
}

// draw returns the time from the start of the previous instance of the container to the start of this instance; 0 if one of them is
// missing.
func (d *differ) draw(t *Trace, name string, attempt uint32) time.Duration {
	all := t.instances(name)
	if attempt%lifeAttempts == 0 || all[attempt] == nil || all[attempt-1] == nil {
		return 0
	}
	return all[attempt].began.Sub(all[attempt-1].began)
}

// lag returns how much later than Wherry upstream's kubelet started an instance; 0 if it was not later, or if one agent did not start it.
func (d *differ) lag(name string, attempt uint32) time.Duration {
	u, w := d.upstream.instances(name)[attempt], d.wherry.instances(name)[attempt]
	if u == nil || w == nil {
		return 0
	}
	return max(0, u.began.Sub(d.upstream.Created)-w.began.Sub(d.wherry.Created))
}

// behind returns how long before the pod's deletion a value of Wherry's must begin so that upstream's kubelet, too, reports it early enough to be
// compared: the lag with which the kubelet made the last restart before the time at, and the time in which it sees and shows what follows. It
// returns 0 if that restart has no lag, and for a trace of upstream's kubelet.
func (d *differ) behind(t *Trace, at time.Time) time.Duration {
	if t != d.wherry {
		return 0
	}
	var last *instance
	lag := time.Duration(0)
	for _, name := range d.c.containers() {
		for attempt, in := range t.instances(name) {
			if in.began.Before(at) && (last == nil || in.began.After(last.began)) {
				last, lag = in, 0
				if attempt%lifeAttempts > 0 { // only a restart has a back-off, which upstream's kubelet lengthens
					lag = d.lag(name, attempt)
				}
			}
		}
	}
	if lag == 0 {
		return 0
	}
	return lag + listed + settled + sends
}

// atTheEnd reports whether an agent started an instance so shortly before the end of the pod's life that the other agent, which may be
// slower (see patience), may not have had the time to start it.
func (d *differ) atTheEnd(t *Trace, in *instance, name string, attempt uint32) bool {
	return in.began.After(d.lifeEnds(t, in.began).Add(-d.patience(t, name, attempt)))
}

// patience returns how much later than the agent of the trace the other agent may start an instance.
func (d *differ) patience(t *Trace, name string, attempt uint32) time.Duration {
	slow := late
	if t == d.wherry && attempt%lifeAttempts > 0 {
		slow += d.draw(t, name, attempt)/2 + d.lag(name, attempt-1)
	}
	return slow
}

// end describes how an instance ended on upstream's kubelet, in words for the name of a class.
func (d *differ) end(name string, attempt uint32) string {
	in := d.upstream.instances(name)[attempt]
	switch {
	case in == nil:
		return "an end"
	case !in.stopped.IsZero():
		return "a stop"
	case d.c.play(name, attempt%lifeAttempts).StartError != "":
		return "a failed start"
	}
	return "an exit"
}
