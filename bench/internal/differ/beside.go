package differ

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// What the API shows of something that happens at about the same time as something else.

// ofAMoment returns the excuse for one field of a last status, that of a container or, for "", of the pod, whose value hangs on a moment.
func (d *differ) ofAMoment(name, field, u, w string) string {
	pulls := func(v string) bool { return v == "waiting ErrImagePull" || v == "waiting ImagePullBackOff" }
	switch {
	case name != "" && field == "lastState" && d.everEndsItself(name):
		return excuseOwnEnd
	case name != "" && field == "state" && pulls(u) && pulls(w):
		return excuseShown
	case name != "" && field == "state" && len(d.extras) > 0 && len(d.upstream.instances(name))+len(d.wherry.instances(name)) == 0:
		return excuseExtra
	case name == "" && strings.HasPrefix(field, "observedGeneration") && d.deletedBesideItsEnd():
		return excuseSoon
	case name != "" || !slices.Contains([]string{"phase", "condition Ready", "condition ContainersReady", "condition Initialized"}, field):
		return ""
	case d.anyEndsItself():
		return excuseOwnEnd
	case len(d.extras) > 0:
		return excuseExtra
	}
	return ""
}

// anyEndsItself reports whether the newest instance of any container was asked to end about when it ended by itself.
func (d *differ) anyEndsItself() bool { return slices.ContainsFunc(d.c.containers(), d.lastEndsItself) }

// deletedBesideItsEnd reports whether the deletion came between the time when one side told of the pod's end and the time when the other did.
func (d *differ) deletedBesideItsEnd() bool {
	before := func(t *Trace) bool {
		for _, s := range t.phases() {
			if strings.HasPrefix(s.value, "Succeeded") || strings.HasPrefix(s.value, "Failed") {
				return s.since.Before(t.Deleted)
			}
		}
		return false
	}
	return before(d.upstream) != before(d.wherry)
}

// withoutExtra returns the spans of a container, or of the pod, that began before an instance that only one side came to.
func (d *differ) withoutExtra(t *Trace, name string, spans []span) []span {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool {
		for e, began := range d.extras {
			ofPod := !slices.Contains(d.c.containers(), name)
			at := t.Created.Add(began.Sub(e.t.Created) - time.Second)
			if (e.name == name || ofPod) && s.since.After(at) && s.since.Before(t.Deleted) {
				return true
			}
		}
		return false
	})
}

// withoutOwnEnds takes out how a container ended, and what follows from that for the pod, where it ended by itself when it was asked to.
func (d *differ) withoutOwnEnds(about, name string, u, w []string) ([]string, []string) {
	ends := func(v string) bool { return strings.HasPrefix(v, "terminated ") }
	switch {
	case strings.HasPrefix(about, "states of "):
		if !d.everEndsItself(name) {
			return u, w
		}
	case strings.HasPrefix(about, "the phases"), strings.HasPrefix(about, "condition Ready"), strings.HasPrefix(about, "condition Initialized"), strings.HasPrefix(about, "condition ContainersReady"):
		if !d.anyEndsItself() {
			return u, w
		}
		ends = func(v string) bool {
			return slices.Contains([]string{"Succeeded", "Failed", "False PodCompleted", "False PodFailed", "True PodCompleted"}, v)
		}
	default:
		return u, w
	}
	return slices.DeleteFunc(u, ends), slices.DeleteFunc(w, ends)
}

// The classes of what one side tells later, or not.
const (
	classToldAfterHook  = "the API hears of a container when the postStart hook of another one has ended: only upstream"
	classReadyOutOfTime = "a container of a pod that is out of time is ready again: only upstream"
	classHearsNobody    = "a container that has ended is shown as running and not ready while its pod ends, since its probe over the network finds nobody: only upstream"
	classOldVersionEnds = "the mirror of a static pod whose manifest is changed shows how the old version ended: only Wherry's"
	classHookFailsAgain = "a container whose postStart hook failed shows how it ended while the hook of its next instance runs: only Wherry"
)

// toldLater returns the class of what only one side has in a series, where its evidence is there.
func (d *differ) toldLater(aspect, about, name string, upstream, wherry []span, u, w []string) string {
	in := func(spans []span, values []string, where func(span) bool) bool {
		return !slices.ContainsFunc(values, func(v string) bool {
			return !slices.ContainsFunc(spans, func(s span) bool { return s.value == v && where(s) })
		})
	}
	all := func(values []string, is func(string) bool) bool {
		return !slices.ContainsFunc(values, func(v string) bool { return !is(v) })
	}
	during := func(t *Trace, margin time.Duration, s func(from, to time.Time) bool) bool {
		return slices.ContainsFunc(d.hooks(t, name), func(h [2]time.Time) bool { return s(h[0].Add(-margin), h[1].Add(margin)) })
	}
	failsAfterStart := func() bool {
		return slices.ContainsFunc(d.c.Plays[name], func(p Play) bool { _, fails := p.Fails["postStart"]; return fails })
	}
	switch {
	case in(upstream, u, func(s span) bool {
		return during(d.upstream, time.Second, func(from, to time.Time) bool {
			end := s.since.Add(s.lasts)
			return s.since.Before(to) && end.After(to.Add(-2*time.Second)) && end.Before(to)
		})
	}) && in(wherry, w, func(s span) bool {
		return during(d.wherry, time.Second, func(from, to time.Time) bool { return s.since.After(from) && s.since.Before(to) })
	}):
		return classToldAfterHook
	case len(w) == 0 && strings.HasPrefix(aspect, "readiness") && !d.deadlineOf(d.upstream).IsZero() &&
		all(u, func(v string) bool { return strings.HasSuffix(v, " ready=true started=true") }) &&
		in(upstream, u, func(s span) bool { return s.since.After(d.deadlineOf(d.upstream).Add(-time.Second)) }):
		return classReadyOutOfTime
	case strings.HasPrefix(aspect, "states of") && failsAfterStart() &&
		all(u, func(v string) bool { return strings.HasSuffix(v, " PostStartHookError") }) &&
		all(w, func(v string) bool { return strings.HasPrefix(v, "terminated ") }):
		return classHookFailsAgain
	case len(u) == 0 && !strings.HasPrefix(about, "states of") && !strings.HasPrefix(about, "readiness of") &&
		in(wherry, w, func(s span) bool {
			return d.written() > 0 && d.wherry.betweenLives(s.since, d.wherry.Created.Add(d.written()-2*time.Second))
		}):
		return classOldVersionEnds
	case len(u) == 0 && tellsOfEnds(aspect, w) && in(wherry, w, func(s span) bool {
		return d.written() > 0 && d.wherry.betweenLives(s.since, d.wherry.Created.Add(d.written()-2*time.Second))
	}):
		return aspect + " while the pod ends: only Wherry tells of each end at once"
	}
	return ""
}

// hooks returns the times of the postStart hooks of other containers that take a while.
func (d *differ) hooks(t *Trace, name string) (out [][2]time.Time) {
	for _, c := range t.Calls {
		takes := d.c.play(c.Container, c.Attempt%lifeAttempts).Slow["postStart"]
		if c.Verb == "ExecSync" && c.Command == "postStart" && takes >= settled && c.Container != name {
			out = append(out, [2]time.Time{c.At, c.At.Add(takes)})
		}
	}
	return out
}

// betweenLives reports whether a static pod's first life was ending then, or had ended, after its manifest was written, and that its next one
// had just begun at most.
func (t *Trace) betweenLives(at, written time.Time) bool {
	var ends, next time.Time
	for _, c := range t.Calls {
		switch {
		case c.At.Before(written):
		case ends.IsZero() && (c.Verb == "StopContainer" || c.Verb == "StopPodSandbox" || c.Command == "preStop"):
			ends = c.At
		case !ends.IsZero() && next.IsZero() && c.Verb == "RunPodSandbox":
			next = c.At
		}
	}
	return !ends.IsZero() && !next.IsZero() && at.After(ends) && at.Before(next.Add(late))
}

// comesBack reports whether the case is a static pod whose manifest is removed and written again.
func (d *differ) comesBack() bool {
	removed := false
	for _, a := range d.c.Acts {
		removed = removed || a.Do == RemoveFile
		if removed && a.Do == WriteFile {
			return true
		}
	}
	return false
}

// written is when a static pod's manifest was last written.
func (d *differ) written() (at time.Duration) {
	for _, a := range d.c.Acts {
		if a.Do == WriteFile {
			at = a.At
		}
	}
	return at
}

// stopsLate reports whether a container was asked to end, or its hook was run, when it had ended.
func (t *Trace) stopsLate(name string) bool {
	return slices.ContainsFunc(t.Calls, func(c Call) bool { return c.Container == name && c.Late })
}

// hurries reports whether an instance of a container was asked to end in its first second.
func (t *Trace) hurries(name string) bool {
	for _, in := range t.instances(name) {
		if in.hurried() {
			return true
		}
	}
	return false
}

// failsInTheEnd reports whether a probe of a container began to fail at about the time when it was asked to end: whether it ran once more
// hangs on a moment.
func (d *differ) failsInTheEnd(t *Trace, name string) bool {
	for attempt, in := range t.instances(name) {
		for _, probe := range probeNames {
			w, fails := d.c.play(name, attempt%lifeAttempts).Fails[probe]
			if fails && !in.stopped.IsZero() && in.stopped.Sub(in.began.Add(w.From)).Abs() < probed {
				return true
			}
		}
	}
	return false
}

// hookEndsWith reports whether a preStop hook ended at about the time when its container was killed.
func (d *differ) hookEndsWith(t *Trace, name string) bool {
	for _, hook := range t.Calls {
		if hook.Container != name || hook.Command != "preStop" {
			continue
		}
		ends := hook.At.Add(d.c.play(name, hook.Attempt%lifeAttempts).Slow["preStop"])
		for _, stop := range t.Calls {
			killed := stop.At.Add(time.Duration(stop.Timeout) * time.Second)
			if stop.Container == name && stop.Attempt == hook.Attempt && stop.Verb == "StopContainer" && killed.Sub(ends).Abs() < time.Second {
				return true
			}
		}
	}
	return false
}

// endsLast reports whether a container was asked to end in the five seconds before the pod's deletion: whether it has a back-off hangs on a
// moment.
func (t *Trace) endsLast(name string) bool {
	in := newest(t.instances(name))
	return in != nil && !in.stopped.IsZero() && in.stopped.Before(t.Deleted) && t.Deleted.Sub(in.stopped) < late
}

// deadlineBeside reports whether a container was asked to end at about the pod's deadline.
func (d *differ) deadlineBeside(t *Trace, name string) bool {
	at := d.deadlineOf(t)
	for _, in := range t.instances(name) {
		if !at.IsZero() && !in.stopped.IsZero() && in.stopped.Sub(at).Abs() < settled {
			return true
		}
	}
	return false
}

// hearsNobody reports whether all that is told of a container's readiness while its pod ends is that it is not ready, and that it is asked
// over the network.
func (d *differ) hearsNobody(aspect, name string, u, w []string) bool {
	if len(w) > 0 || !strings.HasPrefix(aspect, "readiness") || slices.ContainsFunc(u, func(v string) bool { return !strings.Contains(v, " ready=false ") }) {
		return false
	}
	return slices.ContainsFunc(slices.Concat(d.c.Spec.InitContainers, d.c.Spec.Containers), func(x v1.Container) bool {
		_, asks := networkProbes(x)["readiness"]
		return x.Name == name && asks
	})
}

// unheard reports whether a probe over the network found nobody who listens, though the container listens for as long as it runs: it had ended.
func (d *differ) unheard(name, message string) bool {
	kind, text, failed := strings.Cut(message, " probe failed: ")
	if !failed || !slices.ContainsFunc([]string{"connection refused", "connection reset by peer", "EOF", "failed to connect service"}, func(s string) bool { return strings.Contains(text, s) }) {
		return false
	}
	for _, x := range slices.Concat(d.c.Spec.InitContainers, d.c.Spec.Containers) {
		how, is := networkProbes(x)[strings.ToLower(kind)]
		if x.Name != name || !is {
			continue
		}
		closes := how.TCPSocket != nil && slices.ContainsFunc(d.c.Plays[name], func(p Play) bool { _, fails := p.Fails[strings.ToLower(kind)]; return fails })
		return !closes
	}
	return false
}
