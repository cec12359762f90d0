package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// How a pod ends, and what comes after.

// part splits spans into those that began before the pod's end did, and the others.
func (t *Trace) part(spans []span) (before, after []span) {
	ends := t.ends()
	for _, s := range spans {
		if s.since.Before(ends) {
			before = append(before, s)
		} else {
			after = append(after, s)
		}
	}
	return before, after
}

// beforeRemoval returns the spans that began before the pod's manifest was removed.
func (t *Trace) beforeRemoval(spans []span) (out []span) {
	for _, s := range spans {
		if s.since.Before(t.Deleted) {
			out = append(out, s)
		}
	}
	return out
}

// inTheEnd says whether two sequences differ in nothing that began before the pod's end, and returns the values that only one side
// had after that, each on its own.
func (d *differ) inTheEnd(upstream, wherry []span) (u, w []string, only bool) {
	uBefore, uAfter := d.upstream.part(upstream)
	wBefore, wAfter := d.wherry.part(wherry)
	uMore, _ := apart(d.upstream.lasting(uBefore), values(wherry))
	wMore, _ := apart(d.wherry.lasting(wBefore), values(upstream))
	uMore = d.withoutWaits(uMore, values(wherry))
	u, w = d.upstream.lasting(uAfter), d.wherry.lasting(wAfter)
	without := func(a, b []string) []string {
		return slices.DeleteFunc(slices.Clone(a), func(v string) bool { return slices.Contains(b, v) })
	}
	return without(u, w), without(w, u), len(uMore)+len(wMore) == 0
}

// ends returns when the pod's end began: its deletion, or the first stop after which nothing was started any more.
func (t *Trace) ends() time.Time {
	last := t.Created
	for _, c := range t.Calls {
		if c.Verb == "StartContainer" {
			last = c.At
		}
	}
	for _, c := range t.Calls {
		if (c.Verb == "StopContainer" || c.Verb == "StopPodSandbox") && !c.At.Before(last) && c.At.Before(t.Deleted) {
			return c.At
		}
	}
	return t.Deleted
}

// mirrorWithoutEnd reports whether upstream's kubelet took the mirror of a removed static pod out of the API before it told of its end.
func (d *differ) mirrorWithoutEnd() bool {
	if d.c.Kind != Static || len(d.upstream.Statuses) == 0 {
		return false
	}
	if d.upstream.running(d.upstream.last()) {
		return true
	}
	return d.upstream.waits() && d.wherry.last() != nil && !d.wherry.waits()
}

// waits reports whether the last status has a container that waits.
func (t *Trace) waits() bool {
	s := t.last().Status
	return slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses), func(c v1.ContainerStatus) bool { return c.State.Waiting != nil })
}

// running reports whether a version of the pod shows a container as running that was asked to end later.
func (t *Trace) running(p *v1.Pod) bool {
	return slices.ContainsFunc(t.Calls, func(c Call) bool {
		s := statusOf(p, c.Container)
		return c.Verb == "StopContainer" && !c.At.Before(t.Deleted) && s != nil && s.State.Running != nil
	})
}

// changedAfterItsEnd reports whether somebody changed the pod after it had ended, and Wherry's last status is of the newer version.
func (d *differ) changedAfterItsEnd() bool {
	u, w := d.upstream.last(), d.wherry.last()
	return u.Generation == w.Generation && u.Status.ObservedGeneration < w.Status.ObservedGeneration && d.after(func(Act) bool { return true })
}

// deletedAfterItsEnd reports whether somebody deleted the pod after it had ended, and upstream's kubelet alone wrote a status for that.
func (d *differ) deletedAfterItsEnd() bool {
	u, w := d.upstream.last(), d.wherry.last()
	return u.Status.ObservedGeneration == u.Generation && u.DeletionTimestamp != nil && w.Status.ObservedGeneration == u.Generation-1 &&
		d.after(func(a Act) bool { return a.Do == Delete })
}

// resizedInItsEnd reports whether somebody resized the pod when it had ended, or was ending on both sides.
func (d *differ) resizedInItsEnd() bool {
	return d.after(func(a Act) bool { return a.Do == Resize }) || slices.ContainsFunc(d.c.Acts, func(a Act) bool {
		ending := func(t *Trace) bool { return !t.Created.Add(a.At).Before(t.ends()) }
		return a.Do == Resize && ending(d.upstream) && ending(d.wherry)
	})
}

// removedStatic reports whether the case is a static pod's whose manifest was removed.
func (d *differ) removedStatic() bool { return d.c.Kind == Static && !d.upstream.Deleted.IsZero() }

// after reports whether such an act came when upstream's kubelet had told of the pod's end, or shortly before.
func (d *differ) after(such func(Act) bool) bool {
	for _, s := range d.upstream.Statuses {
		if s.Pod.Status.Phase == v1.PodSucceeded || s.Pod.Status.Phase == v1.PodFailed {
			return slices.ContainsFunc(d.c.Acts, func(a Act) bool { return such(a) && d.upstream.Created.Add(a.At).After(s.At.Add(-settled)) })
		}
	}
	return false
}

// toldBefore reports whether upstream's kubelet had told the API of the same end of that container.
func (d *differ) toldBefore(name, state string) bool {
	fields := strings.Fields(state)
	return len(fields) >= 3 && fields[0] == "terminated" && slices.ContainsFunc(d.upstream.Statuses, func(seen Seen) bool {
		s := statusOf(seen.Pod, name)
		if s == nil {
			return false
		}
		told := s.State.Terminated
		if told == nil { // the end of an instance that waits for its next start
			told = s.LastTerminationState.Terminated
		}
		return told != nil && told.Reason == fields[1] && fmt.Sprint(told.ExitCode) == fields[2]
	})
}

// endIsTaken reports whether all that differs is an end that upstream's kubelet had told and takes back: the last status tells of that.
func (d *differ) endIsTaken(about string, u, w []string) bool {
	name, states := strings.CutSuffix(strings.TrimPrefix(about, "states of "), " in the API")
	unknown := func(v string) bool {
		return strings.HasPrefix(v, "terminated ") && strings.Contains(v, " "+unknownEnd+" ")
	}
	return states && len(u) == 1 && unknown(u[0]) && len(w) == 1 && d.toldBefore(name, strings.Join(slices.Delete(strings.Fields(w[0]), 1, 2), " "))
}

// withoutWaits takes out of upstream's values what it shows of a failed start or end while it waits already: those of an attempt of
// which Wherry says that it waits.
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

// unknownEnd is the reason of an end that nobody saw.
const unknownEnd = "ContainerStatusUnknown"

// withoutUnknown takes an end of which upstream's kubelet knows nothing any more, though it had told of it, out of its values, and
// that end out of Wherry's. The last status tells of it.
func (d *differ) withoutUnknown(name string, u, w []string) ([]string, []string) {
	told := func(v string) bool {
		fields := strings.Fields(v)
		return len(fields) == 4 && d.toldBefore(name, strings.Join(slices.Delete(fields, 1, 2), " "))
	}
	lost := func(v string) bool {
		return strings.HasPrefix(v, "terminated ") && strings.Contains(v, " "+unknownEnd+" ")
	}
	if !slices.ContainsFunc(u, lost) || !slices.ContainsFunc(values(d.wherry.states(name)), told) {
		return u, w
	}
	return slices.DeleteFunc(u, lost), slices.DeleteFunc(w, told)
}
