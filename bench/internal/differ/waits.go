package differ

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"
)

// Upstream's kubelet handles each pod in one function, syncPod, and writes the pod's status when syncPod begins. While syncPod waits for
// a postStart hook or for the end of a container, the kubelet does nothing else for the pod and writes no status. The code below finds
// these waits.

// wait is a time during which upstream's kubelet waits for the postStart hook or the end of a container, and does nothing else for the
// pod.
type wait struct {
	from, to  time.Duration // since the pod's first sandbox
	container string
	attempt   uint32
}

// hookWaits returns the times during which upstream's kubelet waits for a postStart hook. For a hook that fails, it also returns the time
// until the container has ended.
func (d *differ) hookWaits() (out []wait) {
	for i, c := range d.upstream.Calls {
		if c.Verb == "ExecSync" && c.Command == "postStart" {
			w := d.waitFrom(i, d.c.play(c.Container, c.Attempt%lifeAttempts).Slow["postStart"])
			out = append(out, w)
			if to := d.failedHookEnds(i); to > w.to {
				out = append(out, wait{w.from, to, w.container, w.attempt})
			}
		}
	}
	return out
}

// failedHookEnds returns when upstream's kubelet goes on after a postStart hook that failed, its i-th request: with the first request for
// the pod that does not end the hook's container. It returns 0 if the hook did not fail.
func (d *differ) failedHookEnds(i int) time.Duration {
	hook := d.upstream.Calls[i]
	ends := hook.At.Add(d.c.play(hook.Container, hook.Attempt%lifeAttempts).Slow["postStart"] + time.Second)
	stopped := false
	for _, c := range d.upstream.Calls[i+1:] {
		switch {
		case c.Verb == "ExecSync" && c.Command != "preStop": // the call runs a probe
		case c.Container == hook.Container && c.Attempt == hook.Attempt && (c.Verb == "StopContainer" || c.Command == "preStop"):
			if !d.c.hookFails(hook.Container) || !stopped && c.At.After(ends) {
				return 0
			}
			stopped = true
		case stopped:
			return c.At.Sub(d.upstream.Created)
		default:
			return 0
		}
	}
	return 0
}

// stopWaits returns the times during which upstream's kubelet waits for the end of a container in a pod that continues: the container
// starts again, or would without the pod's deletion, or another container keeps running.
func (d *differ) stopWaits() (out []wait) {
	for i, c := range d.upstream.Calls {
		stops := c.Verb == "StopContainer" || c.Verb == "ExecSync" && c.Command == "preStop"
		if stops && !c.Late && (d.goesOn(d.upstream, c) || d.restartsBesideDeletion(c)) {
			most := time.Duration(max(c.Timeout, ptr.Deref(d.c.Spec.TerminationGracePeriodSeconds, 30))+2) * time.Second
			out = append(out, d.waitFrom(i, most))
		}
	}
	return out
}

// waitFrom returns the wait that begins with the i-th request of upstream's kubelet. It ends with the next request for the pod that is
// not a probe, or after the time most.
func (d *differ) waitFrom(i int, most time.Duration) wait {
	c := d.upstream.Calls[i]
	to := c.At.Add(most)
	for _, next := range d.upstream.Calls[i+1:] {
		if next.Verb == "ExecSync" && next.Command != "postStart" && next.Command != "preStop" {
			continue // the call runs a probe
		}
		if next.At.Before(to) {
			to = next.At
		}
		break
	}
	return wait{c.At.Sub(d.upstream.Created), to.Sub(d.upstream.Created), c.Container, c.Attempt}
}

// actsMeanwhile reports whether Wherry started, stopped or changed another container during one of the waits, and upstream's kubelet made
// the same request only after the wait, or never. A wait counts from a second before its beginning, because upstream's kubelet may see
// the cause up to a second later than Wherry.
func (d *differ) actsMeanwhile(waits []wait) bool {
	for _, w := range waits {
		if w.to-w.from < settled {
			continue
		}
		for _, c := range d.wherry.Calls {
			at := c.At.Sub(d.wherry.Created)
			itself := c.Container == w.container && c.Attempt == w.attempt
			if itself || c.Late || at < w.from-time.Second || at > w.to || !acts(c) {
				continue
			}
			if !slices.ContainsFunc(d.upstream.Calls, func(u Call) bool {
				return u.Verb == c.Verb && u.Container == c.Container && u.Attempt == c.Attempt && u.Command == c.Command && u.At.Sub(d.upstream.Created) <= w.to
			}) {
				return true
			}
		}
	}
	return false
}

// acts reports whether a call changes a sandbox or a running container.
func acts(c Call) bool {
	switch c.Verb {
	case "RunPodSandbox", "StopPodSandbox", "StartContainer", "StopContainer", "UpdateContainerResources":
		return true
	case "ExecSync":
		return c.Command == "preStop"
	}
	return false
}

// goesOn reports whether the pod continues after a stop of a container: the container starts again, or the pod's end begins later than
// the stop.
func (d *differ) goesOn(t *Trace, stop Call) bool {
	return t.instances(stop.Container)[stop.Attempt+1] != nil || stop.At.Before(d.ends(t))
}

// restartsBesideDeletion reports whether upstream's kubelet stopped a sidecar because of a failed probe before the pod's main containers, and
// before its deletion: nothing but the deletion kept the kubelet from starting the sidecar again.
func (d *differ) restartsBesideDeletion(stop Call) bool {
	made := slices.ContainsFunc(d.upstream.Calls, func(c Call) bool { return c.Verb == "CreateContainer" && d.c.kind(c.Container) == "main" })
	return d.c.kind(stop.Container) == "sidecar" && !made && stop.At.Before(d.upstream.Deleted) && d.stopsForProbe(stop) && d.deadlineOf(d.upstream).IsZero()
}

// held is a time during which the postStart hook or the stop of a container blocks upstream's kubelet, which then does nothing else for
// the pod. hook is the container whose postStart hook the time begins with; "": it begins with a stop.
type held struct {
	from, to time.Time
	hook     string
}

// hookHolds returns the times during which the postStart hook of a container other than name blocks upstream's kubelet, including the
// stop after a failed hook. For a trace of Wherry these are the times during which the same hook would block upstream's kubelet.
func (d *differ) hookHolds(t *Trace, name string) []held {
	return slices.DeleteFunc(d.holds(t, name), func(h held) bool { return h.hook == "" })
}

// stopHolds returns the times during which the stop of a container other than name blocks upstream's kubelet, in a pod that continues.
// For a trace of Wherry these are the times during which the same stop would block upstream's kubelet.
func (d *differ) stopHolds(t *Trace, name string) []held {
	return slices.DeleteFunc(d.holds(t, name), func(h held) bool { return h.hook != "" })
}

// holds returns the times of at least two seconds during which a hook or a stop of a container other than name blocks upstream's kubelet.
// A hook and the stop right after it count as one time.
func (d *differ) holds(t *Trace, name string) (out []held) {
	for _, c := range t.Calls {
		p, takes, hook, last := d.c.play(c.Container, c.Attempt%lifeAttempts), time.Duration(0), "", len(out)-1
		failed := last >= 0 && out[last].hook == c.Container // a stop after a failed hook
		switch {
		case c.Container == name || c.Late && !failed:
		case c.Command == "postStart":
			takes, hook = p.Slow["postStart"], c.Container
		case !failed && !d.goesOn(t, c):
		case c.Command == "preStop": // the kubelet waits for the hook no longer than the grace period
			takes = min(p.Slow["preStop"], time.Duration(ptr.Deref(d.c.Spec.TerminationGracePeriodSeconds, 30))*time.Second)
		case c.Verb == "StopContainer" && p.Term == TermIgnored:
			takes = time.Duration(c.Timeout) * time.Second
		case c.Verb == "StopContainer" && p.Term == TermSlow:
			takes = slowEnd
		}
		h := held{c.At, c.At.Add(takes), hook}
		if last >= 0 && takes > 0 && h.from.Sub(out[last].to).Abs() < time.Second/2 {
			out[last].to = later(out[last].to, h.to)
		} else if takes > 0 && (hook != "" || d.goesOn(t, c)) {
			out = append(out, h)
		}
	}
	return slices.DeleteFunc(out, func(h held) bool { return h.to.Sub(h.from) < settled })
}
