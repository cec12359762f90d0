package differ

import (
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
)

// The functions in this file find values that depend on the timing. The comparison excuses them, because an agent that looks at the pod a
// second later reports another state.

// endsItself reports whether an instance was asked to end at about the time when its Play (its script) makes it exit. The timing decides
// which comes first.
func (d *differ) endsItself(name string, attempt uint32, in *instance) bool {
	p := d.c.play(name, attempt%lifeAttempts)
	if in.stopped.IsZero() {
		return false
	}
	for _, a := range d.c.Acts {
		if a.Do == LoseSandbox && (in.stopped.Sub(d.upstream.Created.Add(a.At)).Abs() < late || in.stopped.Sub(d.wherry.Created.Add(a.At)).Abs() < late) {
			return true // the container ends with its sandbox
		}
	}
	ends, until := in.began.Add(p.Runs), in.stopped.Add(late)
	if slices.Contains(in.calls, "preStop") { // the container may exit while its preStop hook runs
		until = until.Add(time.Duration(ptr.Deref(d.c.Spec.TerminationGracePeriodSeconds, 0)) * time.Second)
	}
	if grace := in.least(); p.Term == TermIgnored && grace < math.MaxInt64 { // it may exit at any time until it is killed
		until = later(until, in.stopped.Add(time.Duration(grace)*time.Second))
	}
	return p.Exits && ends.After(in.stopped.Add(-late)) && ends.Before(until)
}

// lastEndsItself reports whether the newest instance of a container was asked to end at about the time when it exited by itself.
func (d *differ) lastEndsItself(name string) bool { return d.someEndsItself(name, true) }

// everEndsItself reports whether any instance of a container was asked to end at about the time when it exited by itself.
func (d *differ) everEndsItself(name string) bool { return d.someEndsItself(name, false) }

func (d *differ) someEndsItself(name string, newest bool) bool {
	for _, t := range []*Trace{d.upstream, d.wherry} {
		all := t.instances(name)
		for attempt, in := range all {
			if (!newest || all[attempt+1] == nil) && d.endsItself(name, attempt, in) {
				return true
			}
		}
	}
	return false
}

// hangsOnAMoment returns the name of the Excuse if the timing decides whether the event with the key k occurs, or what its message is;
// otherwise "". Such an event is, for example, about a container that exited by itself when it was asked to end, about a container that
// had just started when the pod ended, or about a command that was interrupted because its container ended.
func (d *differ) hangsOnAMoment(k string, u, w Event) string {
	cut := func(e Event) bool {
		return strings.Contains(e.Message, "errored and resulted in unknown state: ") || strings.HasSuffix(e.Message, "context canceled")
	}
	reason, name := strings.Fields(k)[1], containerOf(k)
	if !slices.Contains([]string{"Unhealthy", "FailedPreStopHook", "FailedPostStartHook", "Created", "Started", "Pulled", "Killing"}, reason) {
		return ""
	}
	switch {
	case reason == "Unhealthy" && (d.unheard(name, u.Message) || d.unheard(name, w.Message)):
		return excuseCut
	case reason == "FailedPreStopHook" && (d.hookEndsWith(d.upstream, name) || d.hookEndsWith(d.wherry, name)):
		return excuseCut
	case reason == "FailedPostStartHook" && d.c.hookEndsItself(name):
		return excuseCut
	case reason == "Unhealthy" && d.unreported(name, probeOf(k), u, w):
		return excuseUnreported
	case reason == "Unhealthy" && (d.upstream.hurries(name) || d.wherry.hurries(name)):
		return excuseHurried
	case (reason == "Killing" || reason == "FailedPreStopHook") && (d.upstream.stopsLate(name) || d.wherry.stopsLate(name)):
		return excuseOwnEnd
	case reason == "Killing" && u.Message != w.Message && (d.deadlineBeside(d.upstream, name) || d.deadlineBeside(d.wherry, name)):
		return excuseCrossed
	case (cut(u) || cut(w)) && (reason == "Unhealthy" || u.Count != w.Count):
		return excuseCut
	case containerOf(k) != "" && !d.sameNumber(containerOf(k)): // the missing instance is reported already
		return excuseExtra
	case d.startsLast(containerOf(k)):
		return excuseLast
	case (reason == "Killing" || reason == "FailedPreStopHook") && slices.ContainsFunc(d.c.containers(), func(name string) bool {
		return strings.Contains(k, "{"+name+"}") && d.everEndsItself(name)
	}):
		return excuseOwnEnd
	}
	return ""
}

// containerOf returns the container in the key of an event; "" if the event is about the pod.
func containerOf(key string) string {
	_, name, _ := strings.Cut(key, "{")
	return strings.TrimSuffix(name, "}")
}

// startsLast reports whether either agent started a container (any container if name is "") less than two seconds before the pod's end. The
// timing then decides how the container ended. An instance does not count if it exited by itself before the pod's end and both agents
// created the same number of instances.
func (d *differ) startsLast(name string) bool {
	return slices.ContainsFunc(d.c.containers(), func(each string) bool {
		return (name == "" || name == each) && (d.startedLast(d.upstream, each) || d.startedLast(d.wherry, each))
	})
}

// lately is the time before the pod's end in which starts are not compared. Upstream's kubelet sees a start up to a second later.
const lately = 2 * time.Second

func (d *differ) startedLast(t *Trace, name string) bool {
	ends := d.ends(t)
	for attempt, in := range t.instances(name) {
		if !in.began.Before(ends) || ends.Sub(in.began) >= lately || ends.Sub(t.Created) <= lately {
			continue
		}
		p := d.c.play(name, attempt%lifeAttempts)
		over := p.StartError != "" || p.Exits && in.began.Add(p.Runs+listed).Before(ends)
		if !over || !d.sameNumber(name) {
			return true
		}
	}
	return false
}

// hurried reports whether an instance was asked to end within a second of its start. The timing then decides whether its postStart hook had
// begun.
func (in *instance) hurried() bool {
	return !in.stopped.IsZero() && in.stopped.Sub(in.began) < time.Second
}

// endsAtOnce reports whether the agent began to end the pod within a second of the start of an instance, which may be stopped later: a sidecar
// waits for the sidecars after it. The timing then decides whether its postStart hook had begun.
func (d *differ) endsAtOnce(t *Trace, in *instance) bool {
	after := d.ends(t).Sub(in.began)
	return after >= 0 && after < time.Second
}

func (in *instance) without(call string) *instance {
	return in.only(func(i int) bool { return in.calls[i] != call })
}

// only returns a copy of the instance with the calls whose index keep accepts.
func (in *instance) only(keep func(i int) bool) *instance {
	out := *in
	out.calls, out.at = nil, nil
	for i := range in.calls {
		if keep(i) {
			out.calls, out.at = append(out.calls, in.calls[i]), append(out.at, in.at[i])
		}
	}
	return &out
}

// unstopped returns a copy of the instance without the calls that end it: preStop hooks and stops.
func (in *instance) unstopped() *instance {
	return in.only(func(i int) bool { return in.calls[i] != "preStop" && !stopCall.MatchString(in.calls[i]) })
}

// ownOrder returns the list of stopped containers without those whose stop depends on the exit of another container.
func (d *differ) ownOrder(stops []string) []string {
	return slices.DeleteFunc(slices.Clone(stops), d.anotherEndsItself)
}

// anotherEndsItself reports whether the timing decides when a sidecar is stopped: a sidecar is stopped after the other containers, and
// one of these exited by itself at about the time when it was asked to end.
func (d *differ) anotherEndsItself(name string) bool {
	return d.c.kind(name) == "sidecar" && slices.ContainsFunc(d.c.containers(), func(other string) bool {
		return other != name && d.everEndsItself(other)
	})
}

// outlivesADelay reports whether a container is a sidecar, and one agent starts a main container later by decision. How that one ends, and
// what it leaves of the grace period, then differs.
func (d *differ) outlivesADelay(name string) bool {
	return d.c.kind(name) == "sidecar" && d.late != nil && d.late.start && d.c.kind(d.late.name) == "main" && Decided(d.late.class())
}

// outlivesAnExtra reports whether a container is a sidecar that is stopped after an extra instance: an instance of another container that
// only one agent started. The time of the sidecar's stop, and the rest of its grace period, then depend on the timing.
func (d *differ) outlivesAnExtra(name string) bool {
	return d.c.kind(name) == "sidecar" && slices.ContainsFunc(d.c.containers(), func(other string) bool {
		if d.c.kind(other) == "sidecar" || d.sameNumber(other) {
			return false
		}
		upstream, wherry := d.upstream.instances(other), d.wherry.instances(other)
		for attempt := range both(upstream, wherry) {
			u, w := upstream[attempt], wherry[attempt]
			if u == nil && !d.atTheEnd(d.wherry, w, other, attempt) || w == nil && !d.atTheEnd(d.upstream, u, other, attempt) {
				return false
			}
		}
		return true
	})
}
