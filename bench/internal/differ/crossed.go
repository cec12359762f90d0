package differ

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// beat is an event in the life of a pod to which an agent may react: an act of a user or the machine, the pod's deadline, an exit, a
// probe that reaches its failure threshold, a start, a restart of the agent. The agent sees it between lo and hi, counted from the pod's
// first sandbox.
type beat struct {
	name      string // name of the event; the same event has the same name on both agents
	container string // "": the event concerns the whole pod
	attempt   uint32
	act       Act // the act, if the event is an act
	is        happening
	maybe     bool // the timing decides whether the event happens
	acted     bool // the agent stopped the container at that time
	last      bool // the agent created no later instance of the container
	prevented bool // the container would have exited, but the agent had stopped it shortly before
	lo        time.Duration
	hi        time.Duration
}

// happening is the kind of a beat, that is, of an event in the life of a pod.
type happening int

// These are the kinds of events in the life of a pod.
const (
	isAct happening = iota
	isDeadline
	isRestart // a restart of the agent
	isStart
	isExit
	isFailure // a probe reaches its failure threshold, so the agent has to stop the container
	isSuccess // the startup probe of a sidecar succeeds
	isEnd     // the pod ends by itself
	isKill    // the grace period of a container ends at about the time when the container would exit by itself
)

const (
	// listed is the longest time from an exit until upstream's kubelet sees it. The kubelet lists its containers once a second.
	listed = 1500 * time.Millisecond
	// atOnce is the longest time from an exit until Wherry sees it, because the runtime sends an event, and from a user's act until either
	// agent sees it.
	atOnce = 250 * time.Millisecond
	// probed is the longest time from a change of a probe's result until an agent sees it. All probes run once a second.
	probed = 1200 * time.Millisecond
)

// Crossing is the moment in the life of a pod from which on the two agents may see events in a different order.
type Crossing struct {
	At    time.Duration // when the order may first differ, counted from the pod's first sandbox
	Beats string        // the two events whose order may differ, or the one event that may not happen, without names of containers
}

// crossing returns the first moment from which the timing may make the agents act differently: two events came in a different order on
// the two agents, or so close together that either may be seen first, or an event may have happened on one agent only. nil: there is no
// such moment.
func (d *differ) crossing() (first *Crossing) {
	upstream, wherry := d.beats(d.upstream), d.beats(d.wherry)
	cross := func(at time.Duration, beats ...string) {
		if first == nil || at < first.At {
			for i, name := range beats {
				beats[i] = attempts.ReplaceAllString(d.general(name), "")
			}
			slices.Sort(beats)
			first = &Crossing{At: at, Beats: strings.Join(beats, ", ")}
		}
	}
	for _, alone := range [][2][]beat{{upstream, wherry}, {wherry, upstream}} { // a restart that only one of the two pods lived to see
		for _, b := range alone[0] {
			if b.is == isRestart && find(alone[1], b.name) == nil {
				cross(b.lo, "restart 0")
			}
		}
	}
	for i, a := range upstream {
		c := find(wherry, a.name)
		if c == nil {
			continue
		}
		if maybe := a.maybe || c.maybe; maybe && a.acted != c.acted {
			cross(min(a.lo, c.lo), a.name)
		} else if maybe && !a.acted {
			continue // the event happened on neither agent
		}
		for _, b := range upstream[i+1:] {
			e := find(wherry, b.name)
			if e == nil {
				continue
			}
			a, b := a, b
			a.last, b.last = a.last && c.last, b.last && e.last
			if !d.meets(a, b) || (a.prevented || b.prevented || c.prevented || e.prevented) && a.is != isAct && b.is != isAct {
				continue // an exit that did not come only tells that an act of a user came before it
			}
			u, w := order(d.upstream, a, b), order(d.wherry, *c, *e)
			if u == 0 || u != w {
				cross(min(a.lo, b.lo, c.lo, e.lo), a.name, b.name)
			}
		}
	}
	return first
}

// order returns -1 if the agent of the trace saw the event a before b, 1 if it saw b before a, and 0 if it may have seen either first.
func order(t *Trace, a, b beat) int {
	switch {
	case a.hi < b.lo || t.follows(a, b):
		return -1
	case b.hi < a.lo || t.follows(b, a):
		return 1
	}
	return 0
}

// follows reports whether the act caused the start of a container: between the two the agent stopped the container or made a new sandbox.
func (t *Trace) follows(act, start beat) bool {
	if act.act.Do == "" || start.is != isStart {
		return false
	}
	return slices.ContainsFunc(t.Calls, func(c Call) bool {
		at := c.At.Sub(t.Created)
		return at >= act.lo && at <= start.lo && (c.Verb == "RunPodSandbox" && at > 0 || c.Verb == "StopContainer" && c.Container == start.container && c.Attempt+1 == start.attempt)
	})
}

// meets reports whether the order of two events affects what an agent does.
func (d *differ) meets(a, b beat) bool {
	if a.container == "" {
		a, b = b, a
	}
	kind, other := d.c.kind(a.container), d.c.kind(b.container)
	switch {
	case a.is == isKill, b.is == isKill: // only whether the container exits before it is killed matters (see killed)
		return false
	case a.container == "" && (a.is == isEnd || b.is == isEnd):
		return ended(a.act) || ended(b.act)
	case a.container == "":
		return a.is != isAct || b.is != isAct
	case b.is == isEnd:
		return false
	case b.container == "":
		return b.is != isAct || d.touches(b.act, a)
	case a.container == b.container: // of one container, only the exit and a failed probe of the same instance can come at the same time
		return a.attempt == b.attempt && (a.is == isExit && b.is == isFailure || a.is == isFailure && b.is == isExit)
	case a.is == isStart, b.is == isStart, a.is == isSuccess, b.is == isSuccess: // a start, or the success of a startup probe, only leads to further starts
		return false
	case kind == "init" && other != "sidecar", other == "init" && kind != "sidecar": // one of the two starts only after the other has ended
		return false
	case kind == "sidecar" && other == "sidecar": // each sidecar starts again, whatever the other one does
		return false
	case other == "main" && d.gates(a.container), kind == "main" && d.gates(b.container): // main containers start after the startup probe of a sidecar has succeeded
		return true
	case kind == "main" && other == "main": // the pod ends with the later container; the order of an exit and a failed probe decides which one that is
		return d.final(a) && d.final(b) && (a.is != isExit || b.is != isExit)
	}
	return d.final(a) || d.final(b)
}

// final reports whether the pod may end when this instance ends. b is an event of an instance of an init or main container.
func (d *differ) final(b beat) bool {
	switch d.c.kind(b.container) {
	case "main":
		return b.last && d.mayEnd()
	case "init":
		return b.last && d.mayEnd() && d.c.play(b.container, b.attempt%lifeAttempts).Code != 0
	}
	return false
}

// ended reports whether the effect of an act depends on whether the pod has already ended.
func ended(a Act) bool { return a.Do == Debug || a.Do == Resize || a.Do == SetImage }

// gates reports whether main containers wait for this container: it is a sidecar with a startup probe.
func (d *differ) gates(name string) bool {
	return d.c.kind(name) == "sidecar" && d.c.probe(name, "startup") != nil
}

// touches reports whether the effect of the act a depends on whether it comes before or after the event b of a container.
func (d *differ) touches(a Act, b beat) bool {
	switch a.Do {
	case SetImage, Resize:
		return b.container == a.Container
	case Debug:
		return d.mayEnd() && (b.is == isExit || b.is == isFailure) // if the pod ends first, the ephemeral container does not start
	case Delete: // other excuses cover starts and exits shortly before the pod's end
		return b.is == isFailure || b.is == isSuccess
	case DeleteMirror:
		return false
	case WriteFile:
		return b.attempt < lifeAttempts // the manifest begins the next life of the static pod
	}
	return true
}

// mayEnd reports whether the pod may end by itself.
func (d *differ) mayEnd() bool {
	return d.c.Spec.RestartPolicy != v1.RestartPolicyAlways || slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		return x.RestartPolicy != nil && *x.RestartPolicy != v1.ContainerRestartPolicyAlways
	})
}

// attempts matches the numbers of instances, acts and restarts in the name of a beat (an event in the life of a pod).
var attempts = regexp.MustCompile(`#\d+|^\d+ | \d+$`)

func find(all []beat, name string) *beat {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// beats returns the events in the pod's life as the agent of the trace may see them, ordered by time.
func (d *differ) beats(t *Trace) (all []beat) {
	for i, a := range d.c.Acts {
		seen := atOnce
		if a.Do == LoseSandbox {
			seen = d.looks(t)
		}
		all = append(all, beat{name: fmt.Sprint(i, " ", a.Do), act: a, lo: a.At, hi: a.At + seen})
	}
	end := t.Deleted.Sub(t.Created)
	all = append(all, beat{name: "the deletion", act: Act{Do: Delete}, lo: end, hi: end + atOnce})
	if passes := d.deadlineOf(t); !passes.IsZero() {
		at := passes.Sub(t.Created)
		lo := at
		if t == d.upstream { // upstream's kubelet checks activeDeadlineSeconds once more when it ends a pod, up to a second after it has seen the last exit
			lo -= time.Second
		}
		all = append(all, beat{name: "the deadline", is: isDeadline, lo: lo, hi: at + d.looks(t)})
	}
	if ends := d.ends(t); ends.Before(t.Deleted) {
		told := ends
		for _, s := range t.Statuses {
			if s.Pod.Status.Phase != v1.PodSucceeded && s.Pod.Status.Phase != v1.PodFailed {
				told = later(ends, s.At)
			}
		}
		all = append(all, beat{name: "the pod's own end", is: isEnd, lo: ends.Sub(t.Created) - d.looks(t), hi: min(told.Sub(t.Created), end) + d.looks(t)})
	}
	for i, down := range t.Downs {
		all = append(all, beat{name: fmt.Sprint("restart ", i), is: isRestart, lo: down.From.Sub(t.Created), hi: down.To.Sub(t.Created)})
	}
	for _, name := range d.c.containers() {
		for attempt, in := range t.instances(name) {
			all = append(all, d.beatsOf(t, name, attempt, in)...)
		}
	}
	slices.SortFunc(all, func(a, b beat) int { return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.name, b.name)) })
	return all
}

// beatsOf returns the events in the life of one container instance, as the agent of the trace may see them.
func (d *differ) beatsOf(t *Trace, name string, attempt uint32, in *instance) (all []beat) {
	p := d.c.play(name, attempt%lifeAttempts)
	began, stopped, last := in.began.Sub(t.Created), in.stopped.Sub(t.Created), t.instances(name)[attempt+1] == nil
	add := func(what string, b beat) {
		b.name, b.container, b.attempt, b.last = fmt.Sprintf("%s of %s#%d", what, name, attempt), name, attempt, last
		b.lo, b.hi = b.lo+began, b.hi+began
		prevented := !b.acted && !in.stopped.IsZero() && stopped+b.hi-b.lo <= b.lo
		b.prevented = prevented && b.is == isExit && b.lo-stopped < late
		if !prevented || b.prevented {
			all = append(all, b)
		}
	}
	add("start", beat{is: isStart})
	if p.StartError != "" {
		return all
	}
	if p.Exits {
		hi := min(began+p.Runs+d.looks(t), d.sawEnd(t, name, attempt, began+p.Runs))
		add("exit", beat{is: isExit, lo: p.Runs, hi: hi - began})
		if over, killed := d.killed(t, name, attempt, in); over > 0 {
			all = append(all, beat{name: fmt.Sprintf("end of the grace period of %s#%d", name, attempt), container: name, attempt: attempt, is: isKill, maybe: true, acted: killed, last: last, lo: over, hi: over})
		}
	}
	for _, probe := range []string{"startup", "liveness"} {
		at, maybe := d.killsOf(t, name, probe, p, began)
		if at.first == never {
			continue
		}
		acted := !in.stopped.IsZero() && d.mayAct(t, stopped, began+at.first, began+at.last)
		if acted {
			at = interval{stopped - began, stopped - began}
		}
		if p.Term == TermSlow { // until the old instance has ended, an event may concern the old or the next instance
			at.last += slowEnd
		}
		add("failure of the "+probe+" probe", beat{is: isFailure, maybe: maybe, acted: acted, lo: at.first, hi: at.last})
	}
	if d.c.kind(name) == "sidecar" && d.c.probe(name, "startup") != nil { // the next container in the spec waits for the startup probe
		if at := d.c.starts(name, p); at.first < never && (!p.Exits || at.first < p.Runs+atOnce) {
			on := d.wentOn(t, name, began+at.first)
			beside := p.Exits && at.first >= p.Runs-atOnce // the container may exit before its probe succeeds
			add("success of the startup probe", beat{is: isSuccess, maybe: beside, acted: beside && on < d.beganNext(t, name, attempt), lo: at.first, hi: min(began+at.last, on) - began})
		}
	}
	return all
}

// killsOf is Case.kills for the instance that the agent of the trace started at the time began, counted from the pod's first sandbox. An agent that is
// restarted meanwhile counts the failures of the probe anew, so the probe may succeed before there are enough.
func (d *differ) killsOf(t *Trace, name, probe string, p Play, began time.Duration) (at interval, maybe bool) {
	at, maybe = d.c.kills(name, probe, p)
	if at.first == never {
		return at, maybe
	}
	first, until := d.c.fails(name, probe, p)
	for _, down := range t.Downs {
		from, to := down.From.Sub(t.Created)-began, down.To.Sub(t.Created)-began
		again := to + settled // when the agent certainly probes again: it first lists its pods and containers
		if again < first.first || from > at.last {
			continue
		}
		more := d.c.threshold(d.c.probe(name, probe))
		if from < at.first {
			at.first = max(at.first, to+more)
		}
		at.last = max(at.last, again+probed+d.looks(t)+more)
		maybe = maybe || at.last >= until
	}
	return at, maybe
}

// mayAct reports whether the agent of the trace may have stopped a container at the given time because of an event that happened between first and last.
// Upstream's kubelet counts initialDelaySeconds from the whole second in which the container started, and acts on no other container while it waits
// for a postStart hook or the end of a container.
func (d *differ) mayAct(t *Trace, stopped, first, last time.Duration) bool {
	last += d.looks(t)
	if t == d.upstream {
		first -= time.Second
		for _, w := range slices.Concat(d.hookWaits(), d.stopWaits()) {
			if w.from <= last && w.to > last {
				last = w.to + d.looks(t)
			}
		}
	}
	return stopped >= first && stopped <= last
}

// beganNext returns when the agent started the next instance of a container; never: it did not.
func (d *differ) beganNext(t *Trace, name string, attempt uint32) time.Duration {
	if next := t.instances(name)[attempt+1]; next != nil {
		return next.began.Sub(t.Created)
	}
	return never
}

// killed returns when the grace period of an instance that ignores SIGTERM ends, and whether the runtime killed the instance at that
// time. It returns 0 unless the instance would exit by itself within a second and a half of that time.
func (d *differ) killed(t *Trace, name string, attempt uint32, in *instance) (time.Duration, bool) {
	p := d.c.play(name, attempt%lifeAttempts)
	if in.stopped.IsZero() || p.Term != TermIgnored {
		return 0, false
	}
	for i, call := range in.calls {
		var grace int
		if n, _ := fmt.Sscanf(call, "stop(%d)", &grace); n == 0 {
			continue
		}
		over, ends := in.at[i].Add(time.Duration(grace)*time.Second), in.began.Add(p.Runs)
		if over.Sub(ends).Abs() < listed {
			return over.Sub(t.Created), over.Before(ends.Add(-atOnce)) || !over.After(ends.Add(atOnce)) && t.endsWith(name, attempt, 137)
		}
	}
	return 0, false
}

// endsWith reports whether the API showed that this instance of the container ended with the exit code.
func (t *Trace) endsWith(name string, attempt uint32, code int32) bool {
	return slices.ContainsFunc(t.Statuses, func(s Seen) bool {
		st := statusOf(s.Pod, name)
		if st == nil {
			return false
		}
		now, before := st.State.Terminated, st.LastTerminationState.Terminated
		return now != nil && uint32(st.RestartCount) == attempt%lifeAttempts && now.ExitCode == code ||
			before != nil && uint32(st.RestartCount) == attempt%lifeAttempts+1 && before.ExitCode == code
	})
}

// sawEnd returns a time at which the agent of the trace had certainly seen the end of an instance: when it started the next instance or,
// after an init container, a later container, or when it reported the end to the API. ended is when the end came; all times count from
// the pod's first sandbox. Reports are ignored if the pod may end by itself.
func (d *differ) sawEnd(t *Trace, name string, attempt uint32, ended time.Duration) time.Duration {
	seen := time.Duration(never)
	if next := t.instances(name)[attempt+1]; next != nil {
		seen = next.began.Sub(t.Created)
	}
	if d.c.kind(name) == "init" {
		seen = min(seen, d.wentOn(t, name, ended))
	}
	for _, s := range t.Statuses {
		st := statusOf(s.Pod, name)
		if at := s.At.Sub(t.Created); !d.mayEnd() && at >= ended && st != nil && st.State.Running == nil && uint32(st.RestartCount) == attempt%lifeAttempts {
			seen = min(seen, at)
		}
	}
	return max(ended, seen-1)
}

// wentOn returns when the agent first started, not before the given time, a container that comes after the init container name in the
// spec.
func (d *differ) wentOn(t *Trace, name string, after time.Duration) time.Duration {
	all := d.c.containers()
	all = all[slices.Index(all, name)+1 : len(all)-1] // without the ephemeral container, which is the last
	for _, c := range t.Calls {
		if at := c.At.Sub(t.Created); c.Verb == "StartContainer" && at >= after && slices.Contains(all, c.Container) {
			return max(after, at-1)
		}
	}
	return never
}

// looks returns the longest time that the agent of the trace needs to see an exit.
func (d *differ) looks(t *Trace) time.Duration {
	if t == d.upstream {
		return listed
	}
	return atOnce
}
