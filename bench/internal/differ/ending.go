package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The functions in this file find the moment at which the end of a pod begins, and compare what the agents report after it.

// part splits spans (values over time) into those that began before the agent began to end the pod, and the later ones.
func (d *differ) part(t *Trace, spans []span) (before, after []span) {
	ends := d.ends(t)
	for _, s := range spans {
		if s.since.Before(ends) {
			before = append(before, s)
		} else {
			after = append(after, s)
		}
	}
	return before, after
}

// beforeRemoval returns the spans (values over time) that began before the pod's manifest was removed.
func (t *Trace) beforeRemoval(spans []span) (out []span) {
	for _, s := range spans {
		if s.since.Before(t.Deleted) {
			out = append(out, s)
		}
	}
	return out
}

// inTheEnd compares two series of values over time that may differ after the pod's end has begun. u and w are the values that only
// upstream's kubelet and only Wherry reported after that moment. only is true if the series do not differ before that moment.
func (d *differ) inTheEnd(upstream, wherry []span) (u, w []string, only bool) {
	uBefore, uAfter := d.part(d.upstream, upstream)
	wBefore, wAfter := d.part(d.wherry, wherry)
	uMore, _ := apart(d.lasting(d.upstream, uBefore), values(wherry))
	wMore, _ := apart(d.lasting(d.wherry, wBefore), values(upstream))
	uMore = d.withoutWaits(uMore, values(wherry))
	u, w = d.lasting(d.upstream, uAfter), d.lasting(d.wherry, wAfter)
	if d.before != never { // the other agent may have reported the same value after the Crossing, so compare with all its values
		return notIn(u, values(wherry)), notIn(w, values(upstream)), len(uMore)+len(wMore) == 0
	}
	return notIn(u, values(wAfter)), notIn(w, values(uAfter)), len(uMore)+len(wMore) == 0
}

// ends returns when the agent of the trace began to end the pod: at the pod's deletion, or at the first stop or preStop hook after which
// the agent started no container and no main container continued to run.
func (d *differ) ends(t *Trace) time.Time {
	last := t.Created
	for _, c := range t.Calls {
		if c.Verb == "StartContainer" {
			last = c.At
		}
	}
	for _, c := range t.Calls {
		stops := c.Verb == "StopContainer" || c.Command == "preStop"
		ends := c.Verb == "StopPodSandbox" || stops && !d.runsOn(t, c.At)
		if ends && !c.At.Before(last) && c.At.Before(t.Deleted) {
			return c.At
		}
	}
	return t.Deleted
}

// lifeEnds returns when the life of the pod that contains the time at ended. A static pod begins a new life at each change or removal of
// its manifest; any other pod has only one life.
func (d *differ) lifeEnds(t *Trace, at time.Time) time.Time {
	for _, a := range d.c.Acts {
		if changed := t.Created.Add(a.At); (a.Do == WriteFile || a.Do == RemoveFile) && changed.After(at) && changed.Before(d.ends(t)) {
			return changed
		}
	}
	return d.ends(t)
}

// runsOn reports whether a main container runs at the time at and continues to run for some time.
func (d *differ) runsOn(t *Trace, at time.Time) bool {
	return slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		all := t.instances(x.Name)
		for attempt, in := range all {
			p := d.c.play(x.Name, attempt%lifeAttempts)
			over := p.StartError != "" || p.Exits && in.began.Add(p.Runs).Before(at.Add(listed)) || !in.stopped.IsZero() && in.stopped.Before(at.Add(settled))
			if all[attempt+1] == nil && in.began.Before(at) && !over {
				return true
			}
		}
		return false
	})
}

// mirrorWithoutEnd reports whether upstream's kubelet removed the mirror of a removed static pod from the API without having reported in
// it how the pod ended.
func (d *differ) mirrorWithoutEnd() bool {
	if d.c.Kind != Static || len(d.upstream.Statuses) == 0 {
		return false
	}
	if d.upstream.running(d.upstream.last()) {
		return true
	}
	return d.wherry.last() != nil && slices.ContainsFunc(d.c.containers(), func(name string) bool {
		u, w := statusOf(d.upstream.last(), name), statusOf(d.wherry.last(), name)
		return u != nil && u.State.Waiting != nil && w != nil && w.State.Terminated != nil
	})
}

// mirrorAgain reports whether the mirror of a static pod was deleted after the pod had ended, while it ended or less than five seconds before, and
// only Wherry made another mirror. Until two seconds before the deletion, there is no undecided difference.
func (d *differ) mirrorAgain() bool {
	i := slices.IndexFunc(d.c.Acts, func(a Act) bool { return a.Do == DeleteMirror })
	if i < 0 || slices.ContainsFunc(d.c.Acts, func(a Act) bool { return a.Do == WriteFile || a.Do == RemoveFile }) {
		return false
	}
	endsBeside := func(t *Trace) bool {
		ends := d.ends(t)
		return ends.Before(t.Deleted) && ends.Sub(t.Created) < d.c.Acts[i].At+late
	}
	return endsBeside(d.upstream) && endsBeside(d.wherry) && d.upstream.objects() == 1 && d.wherry.objects() > 1 && d.sameUntil(d.c.Acts[i].At-settled)
}

// sameUntil reports whether what began before the time at has no undecided difference.
func (d *differ) sameUntil(at time.Duration) bool {
	before := newDiffer(d.c, d.upstream, d.wherry, min(d.before, at+late))
	before.calls()
	before.later()
	return undecidedOf(before.found) == 0
}

// objects returns how many pods of the API the trace shows, one after another. For a static pod these are its mirrors.
func (t *Trace) objects() int {
	all := map[types.UID]bool{}
	for _, s := range t.Statuses {
		all[s.Pod.UID] = true
	}
	return len(all)
}

// running reports whether p, a version of the pod in the API, shows a container as running although the agent had stopped it: the same
// instance or, if the stop came after the pod's deletion, any instance.
func (t *Trace) running(p *v1.Pod) bool {
	return slices.ContainsFunc(t.Calls, func(c Call) bool {
		s := statusOf(p, c.Container)
		return c.Verb == "StopContainer" && s != nil && s.State.Running != nil && (!c.At.Before(t.Deleted) || uint32(s.RestartCount) == c.Attempt)
	})
}

// endsBesideDeletion reports whether only one agent began to end the pod before its deletion: less than two seconds before, when all main
// containers had exited. The other agent, which sees that a little later, ends the pod for the deletion, with the deletion's grace period.
func (d *differ) endsBesideDeletion() bool {
	before := func(t *Trace) bool { return d.ends(t).Before(t.Deleted) }
	done := func(t *Trace) bool {
		return !before(t) || t.Deleted.Sub(d.ends(t)) < settled && !slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
			last := newest(t.instances(x.Name))
			return last == nil || !last.stopped.IsZero() || !d.c.play(x.Name, uint32(len(t.instances(x.Name))-1)).Exits
		})
	}
	return before(d.upstream) != before(d.wherry) && done(d.upstream) && done(d.wherry)
}

// changedAfterItsEnd reports whether the pod was changed after it had ended, and only Wherry's last status has the new
// observedGeneration.
func (d *differ) changedAfterItsEnd() bool {
	u, w := d.upstream.last(), d.wherry.last()
	return u.Generation == w.Generation && u.Status.ObservedGeneration < w.Status.ObservedGeneration && d.after(func(Act) bool { return true })
}

// deletedAfterItsEnd reports whether the pod was deleted after it had ended, and only upstream's last status has the observedGeneration
// of the deletion.
func (d *differ) deletedAfterItsEnd() bool {
	u, w := d.upstream.last(), d.wherry.last()
	return u.Status.ObservedGeneration == u.Generation && u.DeletionTimestamp != nil && w.Status.ObservedGeneration == u.Generation-1 &&
		d.after(func(a Act) bool { return a.Do == Delete })
}

// resizedInItsEnd reports whether the pod was resized after its end, or while it was ending on both agents.
func (d *differ) resizedInItsEnd() bool {
	return d.after(func(a Act) bool { return a.Do == Resize }) || slices.ContainsFunc(d.c.Acts, func(a Act) bool {
		ending := func(t *Trace) bool { return !t.Created.Add(a.At).Before(d.ends(t)) }
		return a.Do == Resize && ending(d.upstream) && ending(d.wherry)
	})
}

// resizedAtItsEnd reports whether the case resizes containers, and both agents had asked the newest instance of the container to end
// before each resize.
func (d *differ) resizedAtItsEnd() bool {
	ending := func(t *Trace, a Act) bool {
		var newest *instance
		for attempt, in := range t.instances(a.Container) {
			if t.instances(a.Container)[attempt+1] == nil {
				newest = in
			}
		}
		return newest != nil && !newest.stopped.IsZero() && newest.stopped.Before(t.Created.Add(a.At))
	}
	resized := false
	for _, a := range d.c.Acts {
		if a.Do != Resize {
			continue
		}
		if resized = true; !ending(d.upstream, a) || !ending(d.wherry, a) {
			return false
		}
	}
	return resized
}

// removedStatic reports whether the case is a static pod whose manifest was removed.
func (d *differ) removedStatic() bool { return d.c.Kind == Static && !d.upstream.Deleted.IsZero() }

// after reports whether an act that such selects came after upstream's kubelet had reported the phase Succeeded or Failed, or at most two
// seconds before the report.
func (d *differ) after(such func(Act) bool) bool {
	for _, s := range d.upstream.Statuses {
		if s.Pod.Status.Phase == v1.PodSucceeded || s.Pod.Status.Phase == v1.PodFailed {
			return slices.ContainsFunc(d.c.Acts, func(a Act) bool { return such(a) && d.upstream.Created.Add(a.At).After(s.At.Add(-settled)) })
		}
	}
	return false
}

// repeatsItsEnd reports whether upstream's last status shows the same end of a container in state and in lastState, while Wherry's
// lastState shows an earlier end, which upstream's kubelet had also reported. u and w are the values of state, lastU and lastW those of
// lastState.
func (d *differ) repeatsItsEnd(name, lastU, lastW, u, w string) bool {
	return u == w && lastU == u && strings.HasPrefix(u, "terminated ") && lastW != lastU && d.reportedBefore(name, lastW)
}

// reportedBefore reports whether upstream's kubelet had reported this end of the container to the API. state has the form "terminated
// REASON CODE".
func (d *differ) reportedBefore(name, state string) bool {
	fields := strings.Fields(state)
	return len(fields) >= 3 && fields[0] == "terminated" && slices.ContainsFunc(d.upstream.Statuses, func(seen Seen) bool {
		s := statusOf(seen.Pod, name)
		if s == nil {
			return false
		}
		reported := s.State.Terminated
		if reported == nil { // the container waits for its next start, so its end is in lastState
			reported = s.LastTerminationState.Terminated
		}
		return reported != nil && reported.Reason == fields[1] && fmt.Sprint(reported.ExitCode) == fields[2]
	})
}

// endIsTaken reports whether the values differ only because upstream's kubelet replaced an end of a container that it had reported by
// ContainerStatusUnknown. The comparison of the last status reports this difference already.
func (d *differ) endIsTaken(about string, u, w []string) bool {
	name, states := strings.CutSuffix(strings.TrimPrefix(about, "states of "), " in the API")
	unknown := func(v string) bool {
		return strings.HasPrefix(v, "terminated ") && strings.Contains(v, " "+unknownEnd+" ")
	}
	return states && len(u) == 1 && unknown(u[0]) && len(w) == 1 && d.reportedBefore(name, strings.Join(slices.Delete(strings.Fields(w[0]), 1, 2), " "))
}

// withoutWaits removes from u (values that only upstream's kubelet reported) each failed start or end of a container that Wherry reports
// in another form: it shows the same attempt as waiting for its back-off.
func (d *differ) withoutWaits(u, wherry []string) []string {
	return slices.DeleteFunc(u, func(v string) bool {
		fields := strings.Fields(v)
		if len(fields) < 3 || fields[0] != "terminated" && fields[0] != "waiting" {
			return false
		}
		return slices.ContainsFunc(wherry, func(w string) bool {
			return strings.HasPrefix(w, "waiting "+fields[1]+" ") && strings.HasSuffix(w, "BackOff")
		}) && (fields[0] == "terminated" && !strings.Contains(v, unknownEnd) || slices.Contains([]string{"RunContainerError", "PostStartHookError", "ErrImagePull", "CrashLoopBackOff", "ImagePullBackOff"}, fields[2]))
	})
}

// withoutPulls removes from w (values that only Wherry reported) each failed pull for which upstream's kubelet only shows the back-off.
func withoutPulls(w, upstream []string) []string {
	return slices.DeleteFunc(w, func(v string) bool {
		pull, failed := strings.CutSuffix(v, " ErrImagePull")
		return failed && slices.Contains(upstream, pull+" ImagePullBackOff")
	})
}

// unknownEnd is the reason with which the kubelet reports an end that it did not see.
const unknownEnd = "ContainerStatusUnknown"

// withoutUnknown removes an end of a container from u and w if upstream's kubelet replaced it by ContainerStatusUnknown after it had
// reported it. The comparison of the last status reports this difference already.
func (d *differ) withoutUnknown(name string, u, w []string) ([]string, []string) {
	reported := func(v string) bool {
		fields := strings.Fields(v)
		return len(fields) == 4 && d.reportedBefore(name, strings.Join(slices.Delete(fields, 1, 2), " "))
	}
	lost := func(v string) bool {
		return strings.HasPrefix(v, "terminated ") && strings.Contains(v, " "+unknownEnd+" ")
	}
	if !slices.ContainsFunc(u, lost) || !slices.ContainsFunc(values(d.wherry.states(name)), reported) {
		return u, w
	}
	return slices.DeleteFunc(u, lost), slices.DeleteFunc(w, reported)
}
