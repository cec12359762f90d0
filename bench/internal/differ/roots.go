package differ

import (
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Some decided differences part the lives of a pod for good: what comes after one of them differs on the two sides, whatever the
// agents do. Each has a rule here that looks for its evidence in the calls of both sides. Where a case has it, and differs, the
// case counts for that class, and nothing else of it but its configuration is compared.

// The classes of such differences.
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
	classDebugsInTheEnd = "an ephemeral container is started while the last container ends for a failed probe: only Wherry"

	// It parts only what the API sees:
	classDeadlineInTheEnd = "a deadline that passes while the pod is ending for another reason makes it Failed with DeadlineExceeded: only upstream"
)

// root returns the class that parts the two lives, or nothing.
func (d *differ) root() string {
	switch {
	case d.actsMeanwhile(d.hookWaits()):
		return classWhileHook
	case d.actsMeanwhile(d.stopWaits()):
		return classWhileStop
	case d.c.Kind == Static && d.runsAgain():
		return classEndedStatic
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
	}
	return ""
}

// wait is a time during which upstream's kubelet does nothing else for the pod.
type wait struct {
	from, to  time.Duration // since the pod's first sandbox
	container string
	attempt   uint32
}

// hookWaits returns the postStart hooks that take a while.
func (d *differ) hookWaits() (out []wait) {
	for i, c := range d.upstream.Calls {
		if c.Verb == "ExecSync" && c.Command == "postStart" {
			out = append(out, d.waitFrom(i, d.c.play(c.Container, c.Attempt%lifeAttempts).Slow["postStart"]))
		}
	}
	return out
}

// stopWaits returns the stops of containers of a pod that goes on: what is stopped runs again.
func (d *differ) stopWaits() (out []wait) {
	for i, c := range d.upstream.Calls {
		stops := c.Verb == "StopContainer" || c.Verb == "ExecSync" && c.Command == "preStop"
		if stops && !c.Late && d.upstream.instances(c.Container)[c.Attempt+1] != nil {
			most := time.Duration(max(c.Timeout, ptr.Deref(d.c.Spec.TerminationGracePeriodSeconds, 30))+2) * time.Second
			out = append(out, d.waitFrom(i, most))
		}
	}
	return out
}

// waitFrom returns the time from a call to upstream's next one for the pod, at most as long as the call can take.
func (d *differ) waitFrom(i int, most time.Duration) wait {
	c := d.upstream.Calls[i]
	to := c.At.Add(most)
	for _, next := range d.upstream.Calls[i+1:] {
		if next.Verb == "ExecSync" && next.Command != "postStart" && next.Command != "preStop" {
			continue // a probe
		}
		if next.At.Before(to) {
			to = next.At
		}
		break
	}
	return wait{c.At.Sub(d.upstream.Created), to.Sub(d.upstream.Created), c.Container, c.Attempt}
}

// actsMeanwhile reports whether Wherry started, stopped or changed something else during one of those times, which upstream's kubelet did
// only later, or never. Upstream's kubelet looks once a second: its time may begin that much later.
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

// acts reports whether a call moves something.
func acts(c Call) bool {
	switch c.Verb {
	case "RunPodSandbox", "StopPodSandbox", "StartContainer", "StopContainer", "UpdateContainerResources":
		return true
	case "ExecSync":
		return c.Command == "preStop"
	}
	return false
}

// runsAgain reports whether a static pod that had ended, or whose policy lets it end with its removal, was run again by Wherry alone, after its manifest
// came back.
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
		return d.c.Spec.RestartPolicy != v1.RestartPolicyAlways || s.At.Before(d.upstream.Created.Add(at)) && (s.Pod.Status.Phase == v1.PodSucceeded || s.Pod.Status.Phase == v1.PodFailed)
	}
	return written && slices.ContainsFunc(d.upstream.Statuses, ended) && d.wherry.sandboxes()[0] > d.upstream.sandboxes()[0]
}

// ownPolicy reports whether Wherry alone made a lost sandbox again, in a pod whose containers do not run again but for one that says so.
func (d *differ) ownPolicy() bool {
	own := func(x v1.Container) bool {
		return x.RestartPolicy != nil && *x.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	lost := func(a Act) bool { return a.Do == LoseSandbox }
	return d.c.Spec.RestartPolicy == v1.RestartPolicyNever && slices.ContainsFunc(d.c.Spec.Containers, own) && slices.ContainsFunc(d.c.Acts, lost) &&
		d.wherry.sandboxes()[0] > d.upstream.sandboxes()[0]
}

// cutsShort reports whether a deletion came when Wherry had begun to end the pod, and Wherry asked a container to end once more, with
// less time; upstream's kubelet did not.
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

// stopsAgain are the containers that had been asked to end and were asked to do so sooner, within two seconds of an act.
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
			asked[name] = math.MaxInt64 // the hook is the beginning of its end
		}
	}
	return again
}

// endsWithOne reports whether a main container was asked to end for a failed probe and not started again, and upstream's kubelet gave
// sidecars what was left of that container's time; Wherry gave them more.
func (d *differ) endsWithOne() bool {
	failed := slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		for _, in := range d.upstream.instances(x.Name) {
			if (x.LivenessProbe != nil || x.StartupProbe != nil) && !in.stopped.IsZero() && in.stopped.Before(d.upstream.Deleted) {
				return true
			}
		}
		return false
	})
	if !failed {
		return false
	}
	for _, x := range d.c.Spec.InitContainers {
		for attempt, u := range d.upstream.instances(x.Name) {
			w := d.wherry.instances(x.Name)[attempt]
			if w != nil && !u.stopped.IsZero() && u.stopped.Before(d.upstream.Deleted) && u.least() < w.least() {
				return true
			}
		}
	}
	return false
}

// newest returns a container's last instance, or nil.
func newest(all map[uint32]*instance) *instance {
	var last *instance
	for _, in := range all {
		if last == nil || in.began.After(last.began) {
			last = in
		}
	}
	return last
}

// least returns the shortest time that the instance was given to end, in seconds.
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

// startsInTheEnd reports whether upstream's kubelet alone started a container after the pod's deletion.
func (d *differ) startsInTheEnd() bool {
	for _, c := range d.upstream.Calls {
		if c.Verb == "StartContainer" && c.At.After(d.upstream.Deleted) && c.Attempt%lifeAttempts > 0 && d.wherry.instances(c.Container)[c.Attempt] == nil {
			return true
		}
	}
	return false
}

// debugsInTheEnd reports whether Wherry alone started the ephemeral container, while another one was ending in a pod that nobody had deleted.
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

// deadlineInTheEnd reports whether a deadline passed when the pod's end had begun for another reason, and that upstream's kubelet alone gave
// it as the reason of the end.
func (d *differ) deadlineInTheEnd() bool {
	u, w := d.upstream.last(), d.wherry.last()
	if u == nil || w == nil || u.Status.Reason != "DeadlineExceeded" || w.Status.Reason == "DeadlineExceeded" {
		return false
	}
	ending := func(t *Trace) bool {
		at := d.deadlineOf(t)
		return !at.IsZero() && t.ends().Before(at)
	}
	return ending(d.upstream) && ending(d.wherry)
}

// deadlineOf returns when the pod's deadline passes; zero: never.
func (d *differ) deadlineOf(t *Trace) time.Time {
	s := t.last()
	if s == nil || s.Status.StartTime == nil || d.c.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}
	}
	return s.Status.StartTime.Add(time.Duration(*d.c.Spec.ActiveDeadlineSeconds) * time.Second)
}

// twice reports whether the same attempt of a container was made again.
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

// deadlineAnew reports whether the next life of a static pod with a deadline was ended by upstream's kubelet as soon as it began.
func (d *differ) deadlineAnew() bool {
	if d.c.Kind != Static || d.c.Spec.ActiveDeadlineSeconds == nil {
		return false
	}
	for _, name := range d.c.containers() {
		for attempt, in := range d.upstream.instances(name) {
			if attempt >= lifeAttempts && in.hurried() && in.stopped.Before(d.upstream.Deleted) {
				return true
			}
		}
	}
	return false
}
