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

// beat is something that happens to a pod: an act, its deadline, an exit, a probe that has reached its failure threshold, a
// start, a restart of the agent. An agent sees it at a time between lo and hi, counted from the pod's first sandbox.
type beat struct {
	name      string // name of the event, the same on both sides
	container string // empty: the event is the pod's
	attempt   uint32
	act       Act // if it is one
	is        happening
	maybe     bool // whether it happens depends on the timing
	acted     bool // the container was asked to end at that time
	last      bool // the side made no later instance of the container
	lo        time.Duration
	hi        time.Duration
}

// happening is the kind of a beat.
type happening int

// These are the kinds of beats.
const (
	isAct happening = iota
	isDeadline
	isRestart // a restart of the agent
	isStart
	isExit
	isFailure // a probe has reached its failure threshold, so the container must end
	isSuccess // a sidecar's startup probe succeeds
	isEnd     // the pod ends by itself
)

const (
	// listed is how long after an exit upstream's kubelet sees it at the latest, because it lists its containers once a second.
	listed = 1500 * time.Millisecond
	// atOnce is how long after an exit Wherry sees it at the latest, because the runtime sends it an event. It is also how long
	// after a user's act either agent sees that.
	atOnce = 250 * time.Millisecond
	// probed is how long after a change of a probe's answer either agent sees it at the latest, because both run each probe once
	// a second.
	probed = 1200 * time.Millisecond
)

// Crossing is a point in the life of a pod from which on an agent may see things in another order than the other agent.
type Crossing struct {
	At    time.Duration // since the pod's first sandbox
	Beats string        // the two things that happen then, in general words, or the one thing that may not happen
}

// crossing returns the first point at which two things happened to the pod in a different order on the two sides, or so close to each
// other that an agent may see either first, or at which a thing may have happened on one side only. nil: there is none.
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
	for i, a := range upstream {
		c := find(wherry, a.name)
		if c == nil {
			continue
		}
		if maybe := a.maybe || c.maybe; maybe && a.acted != c.acted {
			cross(min(a.lo, c.lo), a.name)
		} else if maybe && !a.acted {
			continue // it happened on neither side
		}
		for _, b := range upstream[i+1:] {
			e := find(wherry, b.name)
			if e == nil {
				continue
			}
			a, b := a, b
			a.last, b.last = a.last && c.last, b.last && e.last
			if !d.meets(a, b) {
				continue
			}
			u, w := order(d.upstream, a, b), order(d.wherry, *c, *e)
			if u == 0 || u != w {
				cross(min(a.lo, b.lo, c.lo, e.lo), a.name, b.name)
			}
		}
	}
	return first
}

// order returns -1 if one side saw a before b, 1 if it saw b before a, and 0 if it may have seen either first.
func order(t *Trace, a, b beat) int {
	switch {
	case a.hi < b.lo || t.follows(a, b):
		return -1
	case b.hi < a.lo || t.follows(b, a):
		return 1
	}
	return 0
}

// follows reports whether a container was started because of an act: after the act it was stopped, or its pod got a new sandbox.
func (t *Trace) follows(act, start beat) bool {
	if act.act.Do == "" || start.is != isStart {
		return false
	}
	return slices.ContainsFunc(t.Calls, func(c Call) bool {
		at := c.At.Sub(t.Created)
		return at >= act.lo && at <= start.lo && (c.Verb == "RunPodSandbox" && at > 0 || c.Verb == "StopContainer" && c.Container == start.container && c.Attempt+1 == start.attempt)
	})
}

// meets reports whether the order of two things matters.
func (d *differ) meets(a, b beat) bool {
	if a.container == "" {
		a, b = b, a
	}
	kind, other := d.c.kind(a.container), d.c.kind(b.container)
	switch {
	case a.container == "" && (a.is == isEnd || b.is == isEnd):
		return ended(a.act) || ended(b.act)
	case a.container == "":
		return a.is != isAct || b.is != isAct
	case b.is == isEnd:
		return false
	case b.container == "":
		return b.is != isAct || d.touches(b.act, a)
	case a.container == b.container: // one instance ends before the next one starts
		return a.attempt == b.attempt && (a.is == isExit && b.is == isFailure || a.is == isFailure && b.is == isExit)
	case a.is == isStart, b.is == isStart, a.is == isSuccess, b.is == isSuccess: // what follows from a start, or from this success, is a start
		return false
	case kind == "init" && other != "sidecar", other == "init" && kind != "sidecar": // one starts when the other has ended
		return false
	case kind == "sidecar" && other == "sidecar": // each starts again, whatever the other does
		return false
	case other == "main" && d.gates(a.container), kind == "main" && d.gates(b.container): // a main container waits for the startup probe of a sidecar
		return true
	case kind == "main" && other == "main": // the pod ends with the later one, which an exit and a failure may change
		return d.final(a) && d.final(b) && (a.is != isExit || b.is != isExit)
	}
	return d.final(a) || d.final(b)
}

// final reports whether the pod may end with the end of this instance of an init or main container.
func (d *differ) final(b beat) bool {
	switch d.c.kind(b.container) {
	case "main":
		return b.last && d.mayEnd()
	case "init":
		return b.last && d.mayEnd() && d.c.play(b.container, b.attempt%lifeAttempts).Code != 0
	}
	return false
}

// ended reports whether it matters if the pod had ended before an act.
func ended(a Act) bool { return a.Do == Debug || a.Do == Resize || a.Do == SetImage }

// gates reports whether a container is a sidecar with a startup probe.
func (d *differ) gates(name string) bool {
	return d.c.kind(name) == "sidecar" && d.c.probe(name, "startup") != nil
}

// touches reports whether the order of an act and something that a container does matters.
func (d *differ) touches(a Act, b beat) bool {
	switch a.Do {
	case SetImage, Resize:
		return b.container == a.Container
	case Debug:
		return d.mayEnd() && (b.is == isExit || b.is == isFailure) // the pod may end before its ephemeral container starts
	case Delete: // other excuses are about what one side starts shortly before the pod's end, and about what ends by itself then
		return b.is == isFailure || b.is == isSuccess
	case DeleteMirror:
		return false
	case WriteFile:
		return b.attempt < lifeAttempts // the next life begins with the manifest
	}
	return true
}

// mayEnd reports whether the pod may end by itself.
func (d *differ) mayEnd() bool {
	return d.c.Spec.RestartPolicy != v1.RestartPolicyAlways || slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		return x.RestartPolicy != nil && *x.RestartPolicy != v1.ContainerRestartPolicyAlways
	})
}

// attempts matches the number of an instance, of an act or of a restart.
var attempts = regexp.MustCompile(`#\d+|^\d+ | \d+$`)

func find(all []beat, name string) *beat {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// beats returns what happened to the pod on one side, ordered by time.
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
		if t == d.upstream { // upstream's kubelet checks the deadline once more when it ends a pod, up to a second after it saw the last exit
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

// beatsOf returns what happened to one instance of a container until it ended.
func (d *differ) beatsOf(t *Trace, name string, attempt uint32, in *instance) (all []beat) {
	p := d.c.play(name, attempt%lifeAttempts)
	began, stopped, last := in.began.Sub(t.Created), in.stopped.Sub(t.Created), t.instances(name)[attempt+1] == nil
	add := func(what string, b beat) {
		b.name, b.container, b.attempt, b.last = fmt.Sprintf("%s of %s#%d", what, name, attempt), name, attempt, last
		b.lo, b.hi = b.lo+began, b.hi+began
		if b.acted || in.stopped.IsZero() || stopped+b.hi-b.lo > b.lo {
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
	}
	for _, probe := range []string{"startup", "liveness"} {
		at, maybe := d.c.kills(name, probe, p)
		if at.first == never {
			continue
		}
		acted := !in.stopped.IsZero() && stopped >= began+at.first && stopped <= began+at.last+d.looks(t)
		if acted {
			at = interval{stopped - began, stopped - began}
		}
		if p.Term == TermSlow { // until the old instance has ended, an event may concern it or the next instance
			at.last += slowEnd
		}
		add("failure of the "+probe+" probe", beat{is: isFailure, maybe: maybe, acted: acted, lo: at.first, hi: at.last})
	}
	if d.c.kind(name) == "sidecar" && d.c.probe(name, "startup") != nil { // the next container waits for this
		if at := d.c.starts(name, p); at.first < never && (!p.Exits || at.first < p.Runs) {
			hi := min(began+at.last, d.wentOn(t, name, began+at.first))
			add("success of the startup probe", beat{is: isSuccess, lo: at.first, hi: hi - began})
		}
	}
	return all
}

// sawEnd returns the earliest evidence that an agent knew of the end of an instance that ended at that time: it started what comes
// after it, or it reported the end. A pod that may end by itself has not ended yet when the end of its container is reported.
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

// wentOn returns when an agent first started, after that time, a container that comes after an init container in the order of the spec.
func (d *differ) wentOn(t *Trace, name string, after time.Duration) time.Duration {
	all := d.c.containers()
	all = all[slices.Index(all, name)+1 : len(all)-1] // without the ephemeral container
	for _, c := range t.Calls {
		if at := c.At.Sub(t.Created); c.Verb == "StartContainer" && at >= after && slices.Contains(all, c.Container) {
			return max(after, at-1)
		}
	}
	return never
}

// looks returns how long after an exit an agent sees it at the latest.
func (d *differ) looks(t *Trace) time.Duration {
	if t == d.upstream {
		return listed
	}
	return atOnce
}
