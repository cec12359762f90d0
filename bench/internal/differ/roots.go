package differ

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// After some decided (intended) differences everything else that happens to the pod differs too. The functions in this file look for
// evidence of such a difference in the requests of both agents. If a case has undecided differences and such evidence, the comparison
// reports the decided class in their place. Differences of configurations are reported in any case.

// These are the classes of decided (intended) differences that explain all other differences of their case.
const (
	classWhileHook      = "Wherry acts on another container while upstream's kubelet waits for a postStart hook"
	classWhileStop      = "Wherry acts on another container while upstream's kubelet waits for one to end that it restarts"
	classEndedStatic    = "a static pod that had ended runs again when its manifest comes back: only Wherry"
	classOwnPolicy      = "a lost sandbox is made again for a container with a restart policy of its own, in a pod with restartPolicy Never: only Wherry"
	classAttemptTwice   = "an attempt of a container is made twice, after its sandbox was lost: only upstream"
	classDeadlineAnew   = "a static pod whose manifest is changed has its whole deadline again: only Wherry"
	classShorter        = "a deletion with a shorter grace period, or by force, cuts short a pod that is ending: only Wherry"
	classEndsWithOne    = "sidecars get their time from the end of the last container that failed a probe, not from its failure: only Wherry"
	classStartsInTheEnd = "a container is restarted in a pod that is being deleted: only upstream"
	classDeadProbed     = "a container that has ended is taken for one that fails its liveness or startup probe, and restarted without a back-off: only upstream"
	classStopForgotten  = "a container that failed its startup or liveness probe is still stopped after a restart of the agents: only Wherry"
	classHookForgotten  = "a container whose postStart hook failed is still stopped after a restart of the agents: only Wherry"
	classDebugsInTheEnd = "an ephemeral container is started while the last container ends for a failed probe: only Wherry"
	classResizedInHook  = "a container is resized while its own postStart hook runs: only Wherry"
	classChangedInHook  = "a container whose image is changed is stopped while its own postStart hook runs: only Wherry"
	classOldImageFirst  = "a container whose image is changed while another one's postStart hook runs is started with its old image first: only upstream"
	classHookResent     = "a postStart hook that a restart of the agents cuts short runs again: only Wherry"
	classProbedAfter    = "a container is probed when the postStart hook of another one has ended: only upstream"
	classSidecarInEnd   = "a sidecar is restarted while the last main container ends for a failed probe: only Wherry"
	classStartupAgain   = "a container that has started has its startup probe again after a restart of the agents: only upstream"
	classCarriedOver    = "failed probes of a container's last instance count for the next one: only upstream"
	classOwnNever       = "a container whose own restartPolicy is Never runs again in a new sandbox: only upstream"
	classHookFailsInEnd = "a container whose postStart hook fails after the pod's deletion has the pod's grace period instead of the deletion's: only upstream"
	classDeletedInStop  = "the grace period of a deletion begins when a container that is restarted has ended: only upstream"

	// These classes affect only what the agents report to the API, not their requests to the runtime.
	classNeverAgain       = "a pod that never restarts and loses its sandbox before its main containers have run is Failed: only Wherry"
	classMirrorAgain      = "the mirror of a static pod that ends or has ended is made again when it was deleted: only Wherry"
	classPendingAgain     = "a pod that has lost its sandbox is Pending while a main container waits for its back-off: only upstream"
	classDeadlineInTheEnd = "a deadline that passes while the pod is ending for another reason makes it Failed with DeadlineExceeded: only upstream"
)

// root returns the decided class that explains all undecided differences of the case; "" if there is none.
func (d *differ) root() string {
	switch {
	case d.actsMeanwhile(d.hookWaits()):
		return classWhileHook
	case d.actsMeanwhile(d.stopWaits()):
		return classWhileStop
	case d.c.Kind == Static && d.runsAgain():
		return classEndedStatic
	case d.lostInNextLife():
		return classLostInNextLife
	case d.ownPolicy():
		return classOwnPolicy
	case twice(d.upstream) && !twice(d.wherry):
		return classAttemptTwice
	case d.deadlineAnew():
		return classDeadlineAnew
	case d.cutsShort():
		return classShorter
	case d.endsWithOne():
		return classEndsWithOne
	case d.startsInTheEnd():
		return classStartsInTheEnd
	case d.debugsInTheEnd():
		return classDebugsInTheEnd
	case d.deadProbed():
		return classDeadProbed
	case d.hookForgotten():
		return classHookForgotten
	case d.stopForgotten():
		return classStopForgotten
	case d.resizedInHook():
		return classResizedInHook
	case d.changedInHook():
		return classChangedInHook
	case d.oldImageFirst():
		return classOldImageFirst
	case d.hookFailsInTheEnd():
		return classHookFailsInEnd
	case d.deletedInStop():
		return classDeletedInStop
	case d.startupAgain():
		return classStartupAgain
	case d.carriesOver():
		return classCarriedOver
	case d.ownNever():
		return classOwnNever
	case d.hookResent():
		return classHookResent
	case d.probedAfterHook():
		return classProbedAfter
	case d.sidecarInTheEnd():
		return classSidecarInEnd
	}
	return ""
}

// resizedInHook reports whether only Wherry resized a container while the postStart hook of that container ran.
func (d *differ) resizedInHook() bool {
	return slices.ContainsFunc(d.hookWaits(), func(w wait) bool {
		resized := func(t *Trace) bool {
			return slices.ContainsFunc(t.Calls, func(c Call) bool {
				at := c.At.Sub(t.Created)
				return c.Verb == "UpdateContainerResources" && c.Container == w.container && c.Attempt == w.attempt && at >= w.from && at <= w.to
			})
		}
		return w.to-w.from >= settled && resized(d.wherry) && !resized(d.upstream)
	})
}

// changedInHook reports whether an act changed a container's image while the container's postStart hook ran, and only Wherry stopped the
// container during the hook.
func (d *differ) changedInHook() bool {
	return slices.ContainsFunc(d.hookWaits(), func(w wait) bool {
		stopped := func(t *Trace) bool {
			in := t.instances(w.container)[w.attempt]
			return in != nil && !in.stopped.IsZero() && in.stopped.Sub(t.Created) < w.to
		}
		return w.to-w.from >= settled && stopped(d.wherry) && !stopped(d.upstream) && slices.ContainsFunc(d.c.Acts, func(a Act) bool {
			return a.Do == SetImage && a.Container == w.container && a.At > w.from && a.At < w.to
		})
	})
}

// oldImageFirst reports whether an act changed a container's image while the postStart hook of another container ran, and only upstream's
// kubelet then started the container with the old image and replaced it within two seconds.
func (d *differ) oldImageFirst() bool {
	replaced := func(t *Trace, a Act) bool {
		first := t.instances(a.Container)[0]
		return first != nil && first.began.After(t.Created.Add(a.At)) && !first.stopped.IsZero() && first.stopped.Sub(first.began) < settled
	}
	return slices.ContainsFunc(d.c.Acts, func(a Act) bool {
		return a.Do == SetImage && replaced(d.upstream, a) && !replaced(d.wherry, a) && slices.ContainsFunc(d.hookWaits(), func(w wait) bool {
			return w.container != a.Container && w.from <= a.At && a.At <= w.to
		})
	})
}

// deletedInStop reports whether the pod was deleted while upstream's kubelet waited for the end of one container, and only Wherry counted
// that time as a part of the grace period of another container.
func (d *differ) deletedInStop() bool {
	deleted := d.upstream.Deleted.Sub(d.upstream.Created)
	var stops []wait
	for i, c := range d.upstream.Calls {
		if c.Verb == "StopContainer" && !c.Late {
			stops = append(stops, d.waitFrom(i, time.Duration(c.Timeout+2)*time.Second))
		}
	}
	return slices.ContainsFunc(stops, func(w wait) bool {
		if w.to-w.from < settled || deleted <= w.from || deleted >= w.to {
			return false
		}
		waited := int64((w.to - deleted).Seconds()) + 1
		return slices.ContainsFunc(d.c.containers(), func(name string) bool {
			for attempt, u := range d.upstream.instances(name) {
				other := d.wherry.instances(name)[attempt]
				if name != w.container && other != nil && u.least() < math.MaxInt64 && u.least() > other.least() && u.least()-other.least() <= waited {
					return true
				}
			}
			return false
		})
	})
}

// pendingAgain reports whether only upstream's kubelet showed the pod as Pending after the loss of its sandbox. upstream and wherry are
// the phases over time.
func (d *differ) pendingAgain(upstream, wherry []span) bool {
	again := func(t *Trace, spans []span) bool {
		return slices.ContainsFunc(d.c.Acts, func(a Act) bool {
			return a.Do == LoseSandbox && slices.ContainsFunc(spans, func(s span) bool {
				return strings.HasPrefix(s.value, "Pending") && s.since.After(t.Created.Add(a.At))
			})
		})
	}
	return again(d.upstream, upstream) && !again(d.wherry, wherry)
}

// neverAgain reports whether a pod with restartPolicy Never lost its sandbox, and then became Failed with Wherry but remained Pending with
// upstream's kubelet.
func (d *differ) neverAgain() bool {
	phase := func(t *Trace) (phase v1.PodPhase) {
		for _, s := range t.Statuses {
			if s.At.Before(t.Deleted) {
				phase = s.Pod.Status.Phase
			}
		}
		return phase
	}
	return d.c.Spec.RestartPolicy == v1.RestartPolicyNever && phase(d.upstream) == v1.PodPending && phase(d.wherry) == v1.PodFailed &&
		d.c.losesSandbox()
}

// runsAgain reports whether only Wherry ran a static pod, or a container of it, again after its manifest was removed and written again. The pod had
// Succeeded or Failed before, or its restartPolicy is not Always, so that it may end when the manifest is removed.
func (d *differ) runsAgain() bool {
	var removed, written bool
	at := time.Duration(0)
	for _, a := range d.c.Acts {
		switch {
		case a.Do == RemoveFile:
			removed, at = true, a.At
		case a.Do == WriteFile && removed:
			written = true
		}
	}
	ended := func(s Seen) bool {
		return d.mayEnd() || s.At.Before(d.upstream.Created.Add(at)) && (s.Pod.Status.Phase == v1.PodSucceeded || s.Pod.Status.Phase == v1.PodFailed)
	}
	starts := func(t *Trace, name string) bool {
		for _, in := range t.instances(name) {
			if in.began.After(t.Created.Add(at)) {
				return true
			}
		}
		return false
	}
	return written && slices.ContainsFunc(d.upstream.Statuses, ended) &&
		(d.wherry.sandboxes() > d.upstream.sandboxes() || slices.ContainsFunc(d.c.containers(), func(name string) bool {
			return d.c.kind(name) == "main" && starts(d.wherry, name) && !starts(d.upstream, name)
		}))
}

// lostInNextLife reports whether Wherry made as many sandboxes more than upstream's kubelet as were lost of a static pod whose manifest was changed, when
// Wherry had made its sandbox again and upstream's kubelet had not yet.
func (d *differ) lostInNextLife() bool {
	written := d.written()
	if d.c.Kind != Static || written == 0 {
		return false
	}
	again := func(t *Trace) time.Duration { // when the agent made the sandbox of the next life
		for _, c := range t.Calls {
			if at := c.At.Sub(t.Created); c.Verb == "RunPodSandbox" && at >= written {
				return at
			}
		}
		return never
	}
	upstream, wherry := again(d.upstream), again(d.wherry)
	lost := 0
	for _, a := range d.c.Acts {
		if a.Do == LoseSandbox && a.At > wherry && a.At < upstream {
			lost++
		}
	}
	return lost > 0 && d.wherry.sandboxes() == d.upstream.sandboxes()+lost
}

// ownPolicy reports whether the pod has restartPolicy Never, one of its containers has another restartPolicy of its own, and only Wherry
// replaced the lost sandbox.
func (d *differ) ownPolicy() bool {
	own := func(x v1.Container) bool {
		return x.RestartPolicy != nil && *x.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	return d.c.Spec.RestartPolicy == v1.RestartPolicyNever && slices.ContainsFunc(d.c.Spec.Containers, own) && d.c.losesSandbox() &&
		d.wherry.sandboxes() > d.upstream.sandboxes()
}

// cutsShort reports whether an act deleted the pod with a shorter grace period while the pod was already ending, and only Wherry then
// stopped a container a second time, with less time.
func (d *differ) cutsShort() bool {
	for _, a := range d.c.Acts {
		if a.Do != Delete || a.Grace < 0 {
			continue
		}
		upstream := stopsAgain(d.upstream, a)
		for name := range stopsAgain(d.wherry, a) {
			if !upstream[name] {
				return true
			}
		}
	}
	return false
}

// stopsAgain returns the container instances that the agent stopped a second time, with a shorter timeout, within two seconds after the
// act a. A key is the name of the container with the attempt.
func stopsAgain(t *Trace, a Act) map[string]bool {
	again := map[string]bool{}
	at := t.Created.Add(a.At)
	asked := map[string]int64{}
	for _, c := range t.Calls {
		name := fmt.Sprint(c.Container, c.Attempt)
		if before, ended := asked[name]; c.Verb == "StopContainer" && ended && c.Timeout < before && !c.At.Before(at) && c.At.Sub(at) < settled {
			again[name] = true
		}
		switch {
		case c.Verb == "StopContainer" && !c.Late:
			asked[name] = c.Timeout
		case c.Verb == "ExecSync" && c.Command == "preStop" && c.At.Before(at):
			asked[name] = math.MaxInt64 // a preStop hook also begins the stop
		}
	}
	return again
}

// endsWithOne reports whether a failed probe stopped a main container, and the sidecars' time ran from that moment with upstream's kubelet, and later
// with Wherry (see sidecarsEndWith).
func (d *differ) endsWithOne() bool {
	if !d.ends(d.upstream).Before(d.upstream.Deleted) {
		return false
	}
	return slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		if x.LivenessProbe == nil && x.StartupProbe == nil {
			return false
		}
		for attempt, u := range d.upstream.instances(x.Name) {
			if u.stopsBefore(d.upstream.Deleted) && d.sidecarsEndWith(u, d.wherry.instances(x.Name)[attempt]) {
				return true
			}
		}
		return false
	})
}

// sidecarsEndWith reports whether upstream's kubelet gave a sidecar less time for its end than Wherry, or began to stop it together with an instance
// of a main container, and Wherry later. u and w are the instance as the two agents had it; w is nil if Wherry had none.
func (d *differ) sidecarsEndWith(u, w *instance) bool {
	together := func(main, side *instance) bool {
		return main != nil && !main.stopped.IsZero() && !side.stopped.IsZero() && side.stopped.Sub(main.stopped).Abs() < time.Second
	}
	for _, x := range d.c.Spec.InitContainers {
		for attempt, ours := range d.upstream.instances(x.Name) {
			theirs := d.wherry.instances(x.Name)[attempt]
			if theirs == nil || ours.stopped.IsZero() {
				continue
			}
			if ours.least() < theirs.least() || together(u, ours) && w != nil && !w.stopped.IsZero() && !together(w, theirs) {
				return true
			}
		}
	}
	return false
}

// newest returns the instance that began last; nil if there is none.
func newest(all map[uint32]*instance) *instance {
	var last *instance
	for _, in := range all {
		if last == nil || in.began.After(last.began) {
			last = in
		}
	}
	return last
}

// least returns the shortest timeout of the StopContainer calls for the instance, in seconds; math.MaxInt64: there was no such call.
func (in *instance) least() int64 {
	least := int64(math.MaxInt64)
	for _, c := range in.calls {
		if m := stopCall.FindStringSubmatch(c); m != nil {
			var n int64
			_, _ = fmt.Sscan(m[1], &n)
			least = min(least, n)
		}
	}
	return least
}

// startsInTheEnd reports whether only upstream's kubelet restarted a container after the pod's deletion.
func (d *differ) startsInTheEnd() bool {
	for _, c := range d.upstream.Calls {
		if c.Verb == "StartContainer" && c.At.After(d.upstream.Deleted) && c.Attempt%lifeAttempts > 0 && d.wherry.instances(c.Container)[c.Attempt] == nil {
			return true
		}
	}
	return false
}

// debugsInTheEnd reports whether only Wherry started the ephemeral container after a main container had been stopped, in a pod that was
// not yet deleted.
func (d *differ) debugsInTheEnd() bool {
	debug := d.wherry.instances("debug")[0]
	if debug == nil || len(d.upstream.instances("debug")) > 0 || !debug.began.Before(d.wherry.Deleted) {
		return false
	}
	return slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		in := newest(d.wherry.instances(x.Name))
		return in != nil && !in.stopped.IsZero() && in.stopped.Before(debug.began)
	})
}

// deadlineInTheEnd reports whether activeDeadlineSeconds passed while the pod was already ending for another reason, and only upstream's
// kubelet reported the reason DeadlineExceeded.
func (d *differ) deadlineInTheEnd() bool {
	u, w := d.upstream.last(), d.wherry.last()
	if u == nil || w == nil || u.Status.Reason != "DeadlineExceeded" || w.Status.Reason == "DeadlineExceeded" {
		return false
	}
	ending := func(t *Trace) bool {
		at := d.deadlineOf(t)
		return !at.IsZero() && d.ends(t).Before(at)
	}
	return ending(d.upstream) && ending(d.wherry)
}

// deadlineOf returns when the pod's activeDeadlineSeconds passed, by the start time in the trace; zero: never.
func (d *differ) deadlineOf(t *Trace) time.Time {
	s := t.last()
	if s == nil || s.Status.StartTime == nil || d.c.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}
	}
	return s.Status.StartTime.Add(time.Duration(*d.c.Spec.ActiveDeadlineSeconds) * time.Second)
}

// hookForgotten reports whether a restart of both agents interrupted the stop of a container whose postStart hook had failed, and only
// Wherry stopped the container again before the pod's deletion.
func (d *differ) hookForgotten() bool {
	if d.c.Kind != Restart {
		return false
	}
	return slices.ContainsFunc(d.upstream.Calls, func(c Call) bool {
		return c.Verb == "StopContainer" && c.Failed && d.c.hookFails(c.Container) && d.upstream.stopsAfter(c) == never && d.wherry.stopsAfter(c) < never
	})
}

// deadProbed reports whether upstream's kubelet stopped a container that had just exited by itself, and then started it again. The cause is a
// liveness or startup probe over the network, which failed because nothing listened any more. Wherry did not stop the container, or it stopped it too late as
// well, but did not start it again for that reason.
func (d *differ) deadProbed() bool {
	for _, c := range d.upstream.Calls {
		overNetwork := slices.ContainsFunc([]string{"liveness", "startup"}, func(probe string) bool {
			p := d.c.probe(c.Container, probe)
			return p != nil && p.Exec == nil
		})
		if c.Verb != "StopContainer" || !c.Late || !overNetwork || !d.c.play(c.Container, c.Attempt%lifeAttempts).Exits {
			continue
		}
		next, other := d.upstream.instances(c.Container)[c.Attempt+1], d.wherry.instances(c.Container)[c.Attempt+1]
		stops := func(w Call) bool {
			return w.Verb == c.Verb && w.Container == c.Container && w.Attempt == c.Attempt && (other != nil || !w.Late)
		}
		if next != nil && !slices.ContainsFunc(d.wherry.Calls, stops) {
			return true
		}
	}
	return false
}

// twice reports whether an attempt of a container was created more than once.
func twice(t *Trace) bool {
	made := map[string]bool{}
	for _, c := range t.Calls {
		if c.Verb != "CreateContainer" || c.Failed {
			continue
		}
		name := fmt.Sprint(c.Container, c.Attempt)
		if made[name] {
			return true
		}
		made[name] = true
	}
	return false
}

// deadlineAnew reports whether, in a later life of a static pod with activeDeadlineSeconds (after a change of its manifest), only
// upstream's kubelet stopped a container within a second of its start.
func (d *differ) deadlineAnew() bool {
	if d.c.Kind != Static || d.c.Spec.ActiveDeadlineSeconds == nil {
		return false
	}
	for _, name := range d.c.containers() {
		for attempt, in := range d.upstream.instances(name) {
			other := d.wherry.instances(name)[attempt]
			if attempt >= lifeAttempts && in.hurried() && in.stopped.Before(d.upstream.Deleted) && (other == nil || !other.hurried()) {
				return true
			}
		}
	}
	return false
}
