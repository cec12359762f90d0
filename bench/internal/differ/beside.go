package differ

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The functions in this file excuse differences that come from two events at about the same time. The two agents may see such events in a
// different order, and then report different statuses.

// ofAMoment returns the name of the excuse for a difference in one field of the last status, if the value of the field depends on the
// timing; otherwise "". name is the container; "" is for the status of the pod. u and w are the values of upstream and Wherry.
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

// anyEndsItself reports whether, in any container, the newest instance exited by itself at about the time when the agent asked it to end.
func (d *differ) anyEndsItself() bool { return slices.ContainsFunc(d.c.containers(), d.lastEndsItself) }

// deletedBesideItsEnd reports whether the pod was deleted when exactly one agent had already reported it as Succeeded or Failed.
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

// withoutExtra removes from spans (the values of one aspect over time) the values that an extra instance may have caused: an instance
// that only one of the two agents created. These are the values that began after the creation of the instance, or up to a second before.
// name is a container or, for values of the pod, anything else. Values of the pod that began after its deletion stay, except those of the
// condition Initialized if the instance is of an init container.
func (d *differ) withoutExtra(t *Trace, name string, spans []span) []span {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool {
		for e, began := range d.extras {
			ofPod := !slices.Contains(d.c.containers(), name)
			at := t.Created.Add(began.Sub(e.t.Created) - time.Second)
			ofEnd := e.name == name || name == "condition "+string(v1.PodInitialized) && d.c.kind(e.name) == "init"
			if (e.name == name || ofPod) && s.since.After(at) && (ofEnd || s.since.Before(t.Deleted)) {
				return true
			}
		}
		return false
	})
}

// withoutOwnEnds removes values from u and w that depend on the timing because a container exited by itself at about the time when the
// agent asked it to end: the terminated state of the container, and the phases and conditions that follow from it.
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

// These are classes of differences in which one agent reports something later than the other agent, or never. The last words of a class
// say which agent reports it.
const (
	classReportedAfterHook = "the API hears of a container when the postStart hook of another one has ended: only upstream"
	classReportedAfterStop = "the API hears of a container when another one that is stopped has ended: only upstream"
	classReadyOutOfTime    = "a container of a pod that is out of time is ready again: only upstream"
	classHearsNobody       = "a container that has ended is shown as running and not ready while its pod ends, since its probe over the network finds nobody: only upstream"
	classOldVersionEnds    = "the mirror of a static pod whose manifest is changed shows how the old version ended: only Wherry's"
	classAskedInTheEnd     = "a sidecar's liveness or startup probe fails while its pod ends: only upstream tells of it"
	classWaitsForHook      = "a container is shown as waiting, or as its last instance ended, while its postStart hook runs: only Wherry"
	classOldAddress        = "a container in a new sandbox is not ready, since its probe asks the old address: only upstream"
	classRunsByUnknown     = "a static pod that comes back is Running for a container that was never made: only upstream"
	classRunsRemoved       = `last status of the mirror of a removed static pod, phase: upstream "Pending", Wherry "Running"`
	classReadyOfFailed     = "a container of a pod that has failed is ready while the pod ends: only upstream"
	classStartsInItsEnd    = "a sidecar's startup probe succeeds while its pod ends: only upstream tells of it"
	classPullForgotten     = "a container of a pod that has ended no longer waits for its image after a restart of the agents: only upstream"
	classHookCutShort      = "a container has started when its postStart hook ends after the pod's deletion: only upstream"
	classWaitsInNextLife   = "a container of a static pod that comes back waits for its init containers, instead of showing how it ended before: only Wherry"
	classReadySooner       = "a container that exits after a few seconds is ready before: only Wherry"
	classFailedAtOnce      = "the mirror of a static pod that is out of time is Failed before its containers have ended: only upstream"
	classLostInNextLife    = "the sandbox of a static pod's next life is lost before upstream's kubelet has made it: only Wherry makes another"
	classHookFailsAgain    = "a container whose postStart hook failed shows how it ended while the hook of its next instance runs: only Wherry"
	classHookFailedRuns    = "a container whose postStart hook failed is shown as running when its pod is deleted before it has ended: only Wherry"
)

// reportedLater returns the class of a difference if the traces prove that one agent, by design, reports something later than the other;
// otherwise "". u and w are the values that only upstream's kubelet and only Wherry reported.
func (d *differ) reportedLater(aspect, about, name string, upstream, wherry []span, u, w []string) string {
	betweenLives := func(s span) bool {
		return d.written() > 0 && d.wherry.betweenLives(s.since, d.wherry.Created.Add(d.written()-2*time.Second))
	}
	switch {
	case d.reportedAfter(d.hookHolds, name, upstream, wherry, u, w):
		return classReportedAfterHook
	case d.reportedAfter(d.stopHolds, name, upstream, wherry, u, w):
		return classReportedAfterStop
	case len(w) == 0 && strings.HasPrefix(aspect, "readiness") && !d.deadlineOf(d.upstream).IsZero() &&
		all(u, func(v string) bool { return strings.HasSuffix(v, " ready=true started=true") }) &&
		stood(upstream, u, func(s span) bool { return s.since.After(d.deadlineOf(d.upstream).Add(-time.Second)) }):
		return classReadyOutOfTime
	case len(w) == 0 && strings.HasPrefix(aspect, "readiness") && d.asksOldAddress(name, upstream, u):
		return classOldAddress
	case len(w) == 0 && strings.HasPrefix(aspect, "readiness") && !d.upstream.tellsFailed().IsZero() &&
		all(u, func(v string) bool { return strings.HasSuffix(v, " ready=true started=true") }) &&
		stood(upstream, u, func(s span) bool { return s.since.After(d.upstream.tellsFailed()) }):
		return classReadyOfFailed
	case strings.HasPrefix(aspect, "states of") && d.waitsInNextLife(u, w, wherry):
		return classWaitsInNextLife
	case len(u) == 0 && d.readySooner(aspect, name, wherry, w):
		return classReadySooner
	case strings.HasPrefix(aspect, "states of") && d.c.hookFails(name) &&
		all(u, func(v string) bool { return strings.HasSuffix(v, " PostStartHookError") }) &&
		all(w, func(v string) bool { return strings.HasPrefix(v, "terminated ") }):
		return classHookFailsAgain
	case strings.HasPrefix(aspect, "states of") && len(u) == 0 && d.c.hookFails(name) && all(w, func(v string) bool { return strings.HasPrefix(v, "running ") }) &&
		stood(wherry, w, func(s span) bool { return !s.since.Before(d.wherry.Deleted) }):
		return classHookFailedRuns
	case len(u) == 0 && d.readyAtNewAddress(aspect, wherry, w):
		return classOldAddress
	case strings.HasPrefix(aspect, "states of") && len(u) == 0 && all(w, func(v string) bool { return !strings.HasPrefix(v, "running ") }) &&
		stood(wherry, w, func(s span) bool { return d.beginsAgain(s.since, name) }):
		return classWaitsForHook
	case aspect == "phases" && len(w) == 0 && d.failedAtOnce(u):
		return classFailedAtOnce
	case aspect == "phases" && len(w) == 0 && d.pendingAgain(upstream, wherry):
		return classPendingAgain
	case aspect == "phases" && len(u) == 0 && d.runsWhileRemoved(upstream, wherry, w):
		return classRunsRemoved
	case aspect == "phases" && d.comesBack() && len(w) == 0 && slices.Equal(u, []string{"Running"}) && d.upstream.lastUnknown():
		return classRunsByUnknown
	case len(u) == 0 && !strings.HasPrefix(about, "states of") && !strings.HasPrefix(about, "readiness of") && stood(wherry, w, betweenLives):
		return classOldVersionEnds
	case len(u) == 0 && (endsBetweenLives(aspect, notIn(w, values(upstream)), wherry, betweenLives) || endsBetweenLives(aspect, w, wherry, betweenLives)):
		return aspect + " while the pod ends: only Wherry tells of each end at once"
	case d.endsInEachLife(aspect, upstream, wherry):
		return aspect + " while the pod ends: only Wherry tells of each end at once"
	}
	return ""
}

// waitsInNextLife reports whether, after the manifest of a static pod came back, only Wherry shows that a container waits for the init containers
// (the values w), and no other value differs.
func (d *differ) waitsInNextLife(u, w []string, wherry []span) bool {
	back := d.wherry.Created.Add(d.written())
	return d.comesBack() && len(u) == 0 && stood(wherry, w, func(s span) bool {
		return strings.HasPrefix(s.value, "waiting ") && strings.HasSuffix(s.value, " PodInitializing") && s.since.After(back.Add(-time.Second))
	})
}

// endsBetweenLives reports whether all values of w are about ends of containers that Wherry reported between two lives of a static pod.
// between reports whether a span of time is between two lives.
func endsBetweenLives(aspect string, w []string, wherry []span, between func(span) bool) bool {
	return len(w) > 0 && tellsOfEnds(aspect, w) && stood(wherry, w, between)
}

// notIn returns the elements of a that b does not contain.
func notIn(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(v string) bool { return slices.Contains(b, v) })
}

// stood reports whether each of the values was in the API for more than two seconds, in at least one span for which such returns true.
func stood(spans []span, values []string, such func(span) bool) bool {
	return all(values, func(v string) bool {
		return slices.ContainsFunc(spans, func(s span) bool { return s.value == v && s.lasts >= settled+sends && such(s) })
	})
}

func all(values []string, is func(string) bool) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !is(v) })
}

// reportedAfter reports whether the values differ only because upstream's kubelet was blocked, in a hook or a stop: each value of u
// lasted until the kubelet continued, and each value of w began while the kubelet was blocked. holds returns the times during which it
// was blocked.
func (d *differ) reportedAfter(holds func(*Trace, string) []held, name string, upstream, wherry []span, u, w []string) bool {
	during := func(t *Trace, is func(from, to time.Time) bool) bool {
		return slices.ContainsFunc(holds(t, name), func(h held) bool { return is(h.from.Add(-time.Second), h.to.Add(listed)) })
	}
	return stood(upstream, u, func(s span) bool {
		end := s.since.Add(s.lasts)
		return during(d.upstream, func(_, to time.Time) bool {
			return s.since.Before(to) && end.After(to.Add(-2*time.Second)) && end.Before(to)
		})
	}) && stood(wherry, w, func(s span) bool {
		return during(d.wherry, func(from, to time.Time) bool { return s.since.After(from) && s.since.Before(to) })
	})
}

// beginsAgain reports whether, with Wherry, a postStart hook of the container began within a second of at, in an instance that is not the
// container's first, or that had to wait for its image.
func (d *differ) beginsAgain(at time.Time, name string) bool {
	x := d.c.container(name)
	return slices.ContainsFunc(d.wherry.Calls, func(c Call) bool {
		again := c.Attempt%lifeAttempts > 0 || x != nil && x.Image == noImage
		return c.Container == name && c.Command == "postStart" && again && at.Sub(c.At).Abs() < time.Second
	})
}

// hookFails reports whether the postStart hook of a container fails, or is cut short because the container exits first.
func (c *Case) hookFails(name string) bool {
	return slices.ContainsFunc(c.Plays[name], func(p Play) bool {
		_, fails := p.Fails["postStart"]
		return fails || p.Exits && p.Runs <= p.Slow["postStart"]
	})
}

// hookEndsItself reports whether a container exits by itself at about the time when its postStart hook ends.
func (c *Case) hookEndsItself(name string) bool {
	return slices.ContainsFunc(c.Plays[name], func(p Play) bool {
		takes, slow := p.Slow["postStart"]
		return slow && p.Exits && (p.Runs-takes).Abs() < time.Second
	})
}

// lastUnknown reports whether the API showed a container whose lastState has the reason ContainerStatusUnknown.
func (t *Trace) lastUnknown() bool {
	return slices.ContainsFunc(t.Statuses, func(s Seen) bool {
		return slices.ContainsFunc(s.Pod.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
			last := c.LastTerminationState.Terminated
			return last != nil && last.Reason == unknownEnd
		})
	})
}

// betweenLives reports whether the time at is between two lives of a static pod whose manifest was rewritten at the time written: after
// the first request to stop the old containers, and before the next sandbox or at most 5 s (late) after its start.
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

// comesBack reports whether the pod of the case is a static pod whose manifest is removed and later written again.
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

// runsWhileRemoved reports whether only Wherry showed a static pod as Running between the removal of its manifest and its return (the values w,
// which may end with the next life's Pending), while upstream's kubelet always showed it as Pending.
func (d *differ) runsWhileRemoved(upstream, wherry []span, w []string) bool {
	i := slices.IndexFunc(d.c.Acts, func(a Act) bool { return a.Do == RemoveFile })
	if !d.comesBack() || i < 0 || !all(values(upstream), func(v string) bool { return v == "Pending" }) {
		return false
	}
	removed := d.wherry.Created.Add(d.c.Acts[i].At)
	next := slices.DeleteFunc(slices.Clone(w), func(v string) bool { return v == "Pending" })
	return slices.Equal(next, []string{"Running"}) && all(values(wherry), func(v string) bool { return v == "Pending" || v == "Running" }) &&
		!slices.ContainsFunc(wherry, func(s span) bool {
			return s.value == "Running" && s.since.Before(d.wherry.Deleted) && !d.wherry.betweenLives(s.since, removed)
		})
}

// written returns when the manifest of a static pod is last rewritten, counted from the pod's first sandbox; 0: it is never rewritten.
func (d *differ) written() (at time.Duration) {
	for _, a := range d.c.Acts {
		if a.Do == WriteFile {
			at = a.At
		}
	}
	return at
}

// stopsLate reports whether the agent stopped a container, or ran its preStop hook, after the container had exited.
func (t *Trace) stopsLate(name string) bool {
	return slices.ContainsFunc(t.Calls, func(c Call) bool { return c.Container == name && c.Late })
}

// hurries reports whether the agent asked an instance of a container to end within a second of its start.
func (t *Trace) hurries(name string) bool {
	for _, in := range t.instances(name) {
		if in.hurried() {
			return true
		}
	}
	return false
}

// hookEndsWith reports whether a preStop hook of a container ended within a second of the end of the container's grace period. At that
// time the runtime kills the container, so the hook may succeed or fail.
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

// endsLast reports whether the container's newest instance exited, or was asked to end, in the five seconds before the pod's deletion.
// The timing then decides whether the pod's status shows a back-off.
func (d *differ) endsLast(t *Trace, name string) bool {
	all := t.instances(name)
	for attempt, in := range all {
		if all[attempt+1] != nil {
			continue
		}
		over := in.stopped
		if p := d.c.play(name, attempt%lifeAttempts); p.Exits && (over.IsZero() || over.After(in.began.Add(p.Runs))) {
			over = in.began.Add(p.Runs)
		}
		if !over.IsZero() && over.Before(t.Deleted) && t.Deleted.Sub(over) < late {
			return true
		}
	}
	return false
}

// deadlineBeside reports whether a container was asked to end within two seconds of the time at which the pod's activeDeadlineSeconds
// passed.
func (d *differ) deadlineBeside(t *Trace, name string) bool {
	at := d.deadlineOf(t)
	for _, in := range t.instances(name) {
		if !at.IsZero() && !in.stopped.IsZero() && in.stopped.Sub(at).Abs() < settled {
			return true
		}
	}
	return false
}

// hearsNobody reports whether a difference comes only from network readiness probes of containers that have ended, so that nobody listens
// on the port any more. u and w are the values that only upstream's kubelet and only Wherry reported while the pod ended. In this case u
// says only that a container is not ready, and w is empty or says only that the containers have ended.
func (d *differ) hearsNobody(aspect, name string, u, w []string) bool {
	probed := func(name string) bool {
		p := d.c.probe(name, "readiness")
		return p != nil && p.Exec == nil
	}
	if strings.HasPrefix(aspect, "readiness") {
		return len(w) == 0 && all(u, func(v string) bool { return strings.Contains(v, " ready=false ") }) && probed(name)
	}
	ofReadiness := strings.HasPrefix(aspect, "condition Ready ") || strings.HasPrefix(aspect, "condition ContainersReady ")
	return ofReadiness && slices.Equal(u, []string{"False ContainersNotReady"}) && slices.ContainsFunc(d.c.containers(), probed) &&
		all(w, func(v string) bool { return v == "False PodCompleted" || v == "False PodFailed" })
}

// unheard reports whether a network probe failed because the container had exited, so that nobody listened on the port. A probe whose
// port the container's Play closes while the container runs is not such a case. message is the text of the event.
func (d *differ) unheard(name, message string) bool {
	kind, text, failed := strings.Cut(message, " probe failed: ")
	if !failed || !slices.ContainsFunc([]string{"connection refused", "connection reset by peer", "EOF", "failed to connect service"}, func(s string) bool { return strings.Contains(text, s) }) {
		return false
	}
	probe := strings.ToLower(kind)
	p := d.c.probe(name, probe)
	if p == nil || p.Exec != nil {
		return false
	}
	closes := p.TCPSocket != nil && slices.ContainsFunc(d.c.Plays[name], func(p Play) bool { _, fails := p.Fails[probe]; return fails })
	return !closes
}
