package differ

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The functions in this file compare the lives of a static pod one by one: its manifest begins a new life when it is changed or comes back,
// with another mirror. A pod may also end by itself, for its deadline, before its manifest is changed.

// endsInEachLife reports whether all that differs between the states of a container, in each of the two lives of a static pod, is how the
// container had ended, which only Wherry shows, and only after that life's end had begun. The comparison of both lives as one sequence may
// find other differences, because it may take a value of one life for the same value of the other life.
func (d *differ) endsInEachLife(aspect string, upstream, wherry []span) bool {
	if !strings.HasPrefix(aspect, "states of") || d.written() == 0 {
		return false
	}
	again := func(t *Trace) int {
		return slices.IndexFunc(t.Calls, func(c Call) bool {
			return c.Verb == "RunPodSandbox" && !c.At.Before(t.Created.Add(d.written()))
		})
	}
	nextU, nextW := again(d.upstream), again(d.wherry)
	if nextU < 0 || nextW < 0 {
		return false
	}
	atU, atW := d.upstream.Calls[nextU].At, d.wherry.Calls[nextW].At
	before := *d.wherry
	before.Calls, before.Deleted = d.wherry.Calls[:nextW], atW
	return d.onlyEnds(aspect, until(upstream, atU), until(wherry, atW), d.ends(&before)) &&
		d.onlyEnds(aspect, from(upstream, atU), from(wherry, atW), d.ends(d.wherry))
}

// onlyEnds reports whether each value that only one agent reported in one life of a static pod says how a container had ended, was reported
// by Wherry, and was in the API only from the time over on, when Wherry began to end the pod.
func (d *differ) onlyEnds(aspect string, upstream, wherry []span, over time.Time) bool {
	u, _ := apart(d.lasting(d.upstream, upstream), values(wherry))
	w, _ := apart(d.lasting(d.wherry, wherry), values(upstream))
	return len(u) == 0 && tellsOfEnds(aspect, w) && stood(wherry, w, func(s span) bool { return !s.since.Before(over) })
}

// until returns the spans that began before the time at.
func until(spans []span, at time.Time) (out []span) {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return !s.since.Before(at) })
}

// from returns the spans that began at the time at or later.
func from(spans []span, at time.Time) (out []span) {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.since.Before(at) })
}

// failedAtOnce reports whether a static pod was out of time, and upstream's kubelet said so by the phase Failed (the value u) while a
// container still ran. Wherry said by then that the pod is not ready because it has failed, and reported the same phase when no container ran any
// more, which was after the removal of the manifest.
func (d *differ) failedAtOnce(u []string) bool {
	const failed = "Failed DeadlineExceeded"
	if d.c.Kind != Static || d.deadlineOf(d.upstream).IsZero() || d.deadlineOf(d.wherry).IsZero() || !slices.Equal(u, []string{failed}) {
		return false
	}
	first := func(t *Trace) (at time.Time, running bool) {
		for _, s := range t.Statuses {
			if s.Pod.Status.Phase == v1.PodFailed && s.Pod.Status.Reason == "DeadlineExceeded" {
				return s.At, slices.ContainsFunc(d.c.containers(), func(name string) bool {
					c := statusOf(s.Pod, name)
					return c != nil && c.State.Running != nil
				})
			}
		}
		return time.Time{}, false
	}
	atU, runsU := first(d.upstream)
	atW, runsW := first(d.wherry)
	told := d.wherry.tellsFailed()
	return runsU && !runsW && atU.After(d.deadlineOf(d.upstream).Add(-time.Second)) && // the start time in the status is in whole seconds
		!atW.Before(d.wherry.Deleted) && told.After(d.deadlineOf(d.wherry).Add(-time.Second)) && told.Before(d.wherry.Deleted)
}
