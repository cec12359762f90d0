package differ

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// What hangs on a moment is not compared: an agent that is a second later than the other meets another world.

// endsItself reports whether an instance was asked to end about when its play ends: whether it was asked then hangs on a moment.
func (d *differ) endsItself(name string, attempt uint32, in *instance) bool {
	p := d.c.play(name, attempt%lifeAttempts)
	if in.stopped.IsZero() {
		return false
	}
	for _, a := range d.c.Acts {
		if a.Do == LoseSandbox && (in.stopped.Sub(d.upstream.Created.Add(a.At)).Abs() < late || in.stopped.Sub(d.wherry.Created.Add(a.At)).Abs() < late) {
			return true // it ends with its sandbox
		}
	}
	ends, until := in.began.Add(p.Runs), in.stopped.Add(late)
	if slices.Contains(in.calls, "preStop") { // it may end while its hook runs
		until = until.Add(time.Duration(ptr.Deref(d.c.Spec.TerminationGracePeriodSeconds, 0)) * time.Second)
	}
	return p.Exits && ends.After(in.stopped.Add(-late)) && ends.Before(until)
}

// lastEndsItself reports whether the newest instance of a container was asked to end about when it ended by itself.
func (d *differ) lastEndsItself(name string) bool { return d.someEndsItself(name, true) }

// everEndsItself reports whether an instance of the container was asked to end about when it ended by itself.
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

// hangsOnAMoment returns the excuse for an event of the end of a container that ended by itself at about that time, of a container that
// had just been started when the pod ended, or of a command that the end of its container cut short.
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
	case reason == "Unhealthy" && (d.failsInTheEnd(d.upstream, name) || d.failsInTheEnd(d.wherry, name)):
		return excuseCut
	case reason == "Unhealthy" && (d.upstream.hurries(name) || d.wherry.hurries(name)):
		return excuseHurried
	case (reason == "Killing" || reason == "FailedPreStopHook") && (d.upstream.stopsLate(name) || d.wherry.stopsLate(name)):
		return excuseOwnEnd
	case reason == "Killing" && u.Message != w.Message && (d.deadlineBeside(d.upstream, name) || d.deadlineBeside(d.wherry, name)):
		return excuseCrossed
	case (cut(u) || cut(w)) && (reason == "Unhealthy" || u.Count == 0 || w.Count == 0):
		return excuseCut
	case containerOf(k) != "" && !d.sameNumber(containerOf(k)): // the calls tell where they may not
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

// containerOf returns the container that the key of an event names, or nothing.
func containerOf(key string) string {
	_, name, _ := strings.Cut(key, "{")
	return strings.TrimSuffix(name, "}")
}

// startsLast reports whether on either side a container, or for "" any, was started shortly before the pod's end. How it ended hangs on a
// moment, unless it ended by itself before, and both sides had started it as often.
func (d *differ) startsLast(name string) bool {
	return slices.ContainsFunc(d.c.containers(), func(each string) bool {
		return (name == "" || name == each) && (d.startedLast(d.upstream, each) || d.startedLast(d.wherry, each))
	})
}

// lately is how shortly before the pod's end a start counts as short: upstream's kubelet sees it a second later, and says so then.
const lately = 2 * time.Second

func (d *differ) startedLast(t *Trace, name string) bool {
	ends := t.ends()
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

// hurried reports whether an instance was asked to end as soon as it ran: whether its hook had begun hangs on a moment.
func (in *instance) hurried() bool {
	return !in.stopped.IsZero() && in.stopped.Sub(in.began) < time.Second
}

func (in *instance) without(call string) *instance {
	out := *in
	out.calls = slices.DeleteFunc(slices.Clone(in.calls), func(c string) bool { return c == call })
	return &out
}

// unstopped returns an instance without its end.
func (in *instance) unstopped() *instance {
	out := *in
	out.calls = slices.DeleteFunc(slices.Clone(in.calls), func(c string) bool { return c == "preStop" || stopCall.MatchString(c) })
	return &out
}

// ownOrder returns the containers of a list whose place in it does not hang on a moment.
func (d *differ) ownOrder(stops []string) []string {
	return slices.DeleteFunc(slices.Clone(stops), d.anotherEndsItself)
}

// anotherEndsItself reports whether a sidecar's end hangs on a moment: it comes when the main containers have ended, and one of them ended
// by itself when it was asked to.
func (d *differ) anotherEndsItself(name string) bool {
	return d.c.kind(name) == "sidecar" && slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool { return d.everEndsItself(x.Name) })
}
