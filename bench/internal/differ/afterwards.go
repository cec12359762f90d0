package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The functions in this file find evidence of what an agent forgets, or still believes, after a restart, after the loss of a sandbox or after
// a deletion, and of what a probe sees by chance.

// stopForgotten reports whether a restart of both agents interrupted the stop of a container whose startup or liveness probe had failed, and
// only Wherry continued it: upstream's kubelet stopped the container more than five seconds after Wherry, for another reason, or never. If
// the kubelet showed before that the container had started, which Wherry never did, the stop may come sooner, but after Wherry's.
func (d *differ) stopForgotten() bool {
	return d.c.Kind == Restart && slices.ContainsFunc(d.upstream.Calls, func(c Call) bool {
		if !d.upstream.cutShort(c) || !d.stopsForProbe(c) {
			return false
		}
		u, w := d.upstream.stopsAfter(c), d.wherry.stopsAfter(c)
		return w < never && (u > w+late || u > w && d.upstream.showsStarted(c) && !d.wherry.showsStarted(c))
	})
}

// cutShort reports whether c begins the stop of a container, and a restart of the agent interrupted it: in the stop itself, or in the preStop hook before.
func (t *Trace) cutShort(c Call) bool {
	if c.Verb == "StopContainer" {
		return c.Failed
	}
	return c.Command == "preStop" && !c.Late && slices.ContainsFunc(t.Downs, func(down Down) bool {
		return c.At.Before(down.From) && !slices.ContainsFunc(t.Calls, func(stop Call) bool {
			return stop.Verb == "StopContainer" && stop.Container == c.Container && stop.Attempt == c.Attempt && stop.At.Before(down.To)
		})
	})
}

// showsStarted reports whether the agent of the trace showed, after the stop of a container was cut short, that this instance had started.
func (t *Trace) showsStarted(cut Call) bool {
	instance := fmt.Sprint(cut.Attempt, " ")
	return slices.ContainsFunc(t.readiness(cut.Container), func(s span) bool {
		return s.since.After(cut.At) && strings.HasPrefix(s.value, instance) && strings.HasSuffix(s.value, " started=true")
	})
}

// pullForgotten returns the last state of a container with upstream's kubelet, if a restart of both agents made the kubelet forget that the
// container waits for its image: both agents showed that before, and the pod ended. Wherry had shown the end before the restart, and changed
// nothing of the container afterwards. Otherwise it returns "".
func (d *differ) pullForgotten(name string) string {
	forImage := func(state string) bool {
		return strings.HasPrefix(state, "waiting ") && (strings.HasSuffix(state, " ErrImagePull") || strings.HasSuffix(state, " ImagePullBackOff"))
	}
	if len(d.upstream.Downs) == 0 || len(d.wherry.Downs) == 0 || !d.upstream.hasEnded(d.upstream.Deleted) || !d.wherry.hasEnded(d.wherry.Downs[0].From) {
		return ""
	}
	// around returns the state of the container at the restart, and the last one.
	around := func(t *Trace) (before, last string) {
		for _, s := range t.states(name) {
			if last = s.value; s.since.Before(t.Downs[0].From) {
				before = s.value
			}
		}
		return before, last
	}
	before, last := around(d.upstream)
	kept, same := around(d.wherry)
	waits := strings.HasPrefix(last, "waiting ") && (strings.HasSuffix(last, " PodInitializing") || strings.HasSuffix(last, " ContainerCreating"))
	if !waits || !forImage(before) || !forImage(kept) || kept != same {
		return ""
	}
	return last
}

// hasEnded reports whether the API showed at the time at that the pod had Succeeded or Failed.
func (t *Trace) hasEnded(at time.Time) bool {
	return slices.ContainsFunc(t.Statuses, func(s Seen) bool {
		return s.At.Before(at) && (s.Pod.Status.Phase == v1.PodSucceeded || s.Pod.Status.Phase == v1.PodFailed)
	})
}

// stopsForProbe reports whether the startup or liveness probe of a container had reached its failureThreshold when upstream's kubelet stopped
// the container. The kubelet counts an initialDelaySeconds from the whole second in which the container started.
func (d *differ) stopsForProbe(stop Call) bool {
	in := d.upstream.instances(stop.Container)[stop.Attempt]
	return in != nil && slices.ContainsFunc([]string{"startup", "liveness"}, func(probe string) bool {
		at, _ := d.c.kills(stop.Container, probe, d.c.play(stop.Container, stop.Attempt%lifeAttempts))
		return at.first <= stop.At.Sub(in.began)+time.Second
	})
}

// stopsAfter returns when the agent of the trace stopped, before the pod's deletion, the container whose stop a restart of the agents had cut
// short; never: it did not.
func (t *Trace) stopsAfter(cut Call) time.Duration {
	for _, c := range t.Calls {
		if c.Verb == "StopContainer" && !c.Failed && c.Container == cut.Container && c.Attempt == cut.Attempt && c.At.Before(t.Deleted) {
			return c.At.Sub(t.Created)
		}
	}
	return never
}

// outlivesByDecision reports whether only one agent created an instance of a sidecar, in a pod that goes on because a start of another
// container is later by decision: the other agent's pod had ended by itself before.
func (d *differ) outlivesByDecision(name string, u, w *instance) bool {
	l, t, other, in := d.late, d.wherry, d.upstream, w
	if u != nil {
		t, other, in = d.upstream, d.wherry, u
	}
	if l == nil || !l.start || d.c.kind(name) != "sidecar" || l.name == name || !Decided(l.class()) || (w != nil) != (l.wherry > l.upstream) {
		return false
	}
	at, ends := in.began.Sub(t.Created), d.ends(other)
	return at > l.from() && ends.Before(other.Deleted) && at > ends.Sub(other.Created)
}

// withoutOwnGrace removes from u (the values that only upstream's kubelet reported) that a container became ready after Wherry had killed it,
// because only Wherry gave it the grace period of the probe that failed (see ownGrace).
func (d *differ) withoutOwnGrace(aspect, name string, upstream []span, u []string) []string {
	ofPod := aspect == "condition "+string(v1.PodReady) || aspect == "condition "+string(v1.ContainersReady)
	if !ofPod && !strings.HasPrefix(aspect, "readiness") {
		return u
	}
	return slices.DeleteFunc(u, func(v string) bool {
		return (v == "True" || strings.HasSuffix(v, " ready=true started=true")) && slices.ContainsFunc(d.c.containers(), func(of string) bool {
			for attempt, in := range d.upstream.instances(of) {
				w := d.wherry.instances(of)[attempt]
				if !ofPod && of != name || w == nil || in.stopped.IsZero() || d.ownGrace(of, in.calls, w.calls) == "" {
					continue
				}
				killed := in.stopped.Add(time.Duration(w.least()) * time.Second)
				if stood(upstream, []string{v}, func(s span) bool { return !s.since.Before(killed) }) {
					return true
				}
			}
			return false
		})
	})
}

// startupAgain reports whether both agents were restarted after the startup probe of a container had succeeded, the probe fails later, and
// only upstream's kubelet then stopped the container.
func (d *differ) startupAgain() bool {
	return slices.ContainsFunc(d.c.containers(), func(name string) bool {
		if d.c.probe(name, "startup") == nil || len(d.upstream.Downs) == 0 {
			return false
		}
		down := d.upstream.Downs[0].To
		for attempt, u := range d.upstream.instances(name) {
			w, p := d.wherry.instances(name)[attempt], d.c.play(name, attempt%lifeAttempts)
			fails, does := p.Fails["startup"]
			again := does && fails.From > d.c.starts(name, p).last && u.stopsBefore(d.upstream.Deleted) && u.stopped.After(down) && u.began.Before(down)
			if again && w != nil && !w.stopsBefore(d.wherry.Deleted) {
				return true
			}
		}
		return false
	})
}

// carriesOver reports whether only upstream's kubelet stopped an instance of a container whose startup or liveness probe had not failed often
// enough for that, but had together with the failures of the instance before, which ended for another reason while its probe failed.
func (d *differ) carriesOver() bool {
	return slices.ContainsFunc(d.c.containers(), func(name string) bool {
		for attempt, in := range d.upstream.instances(name) {
			before, other := d.upstream.instances(name)[attempt-1], d.wherry.instances(name)[attempt]
			if attempt%lifeAttempts == 0 || before == nil || other == nil || !in.stopsBefore(d.upstream.Deleted) ||
				other.stopsBefore(d.wherry.Created.Add(in.stopped.Sub(d.upstream.Created)+late)) {
				continue
			}
			for _, probe := range []string{"startup", "liveness"} {
				p := d.c.probe(name, probe)
				if p == nil {
					continue
				}
				play := d.c.play(name, (attempt-1)%lifeAttempts)
				ends := play.Runs
				if !before.stopped.IsZero() {
					ends = before.stopped.Sub(before.began)
				}
				own := d.mostFailures(name, probe, d.c.play(name, attempt%lifeAttempts), in.stopped.Sub(in.began))
				if old := d.mostFailures(name, probe, play, ends); old > 0 && own > 0 && old < p.FailureThreshold && own < p.FailureThreshold && old+own >= p.FailureThreshold {
					return true
				}
			}
		}
		return false
	})
}

// mostFailures returns how often a probe of an instance may have failed in a row at the time at after the start of the instance. An agent that
// counts an initialDelaySeconds from a whole second asks up to a second earlier than another one.
func (d *differ) mostFailures(name, probe string, p Play, at time.Duration) int32 {
	first, until := d.c.fails(name, probe, p)
	if from := first.first - time.Second; from <= at && at <= until+probed {
		return int32((at-from)/time.Second) + 1
	}
	return 0
}

// ownNever reports whether the sandbox was lost, and only upstream's kubelet ran a container again whose own restartPolicy is Never.
func (d *differ) ownNever() bool {
	return d.c.losesSandbox() && slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		return x.RestartPolicy != nil && *x.RestartPolicy == v1.ContainerRestartPolicyNever && len(d.upstream.instances(x.Name)) > len(d.wherry.instances(x.Name))
	})
}

// asksOldAddress reports whether upstream's kubelet shows a container as not ready (the values u) because it asks the address of the sandbox
// that was lost: the container has a readiness probe over the network, which does not fail, and runs in a new sandbox.
func (d *differ) asksOldAddress(name string, upstream []span, u []string) bool {
	p := d.c.probe(name, "readiness")
	if p == nil || p.Exec != nil || !d.c.losesSandbox() {
		return false
	}
	return all(u, func(v string) bool { return strings.HasSuffix(v, " ready=false started=true") }) && stood(upstream, u, func(s span) bool {
		for attempt, in := range d.upstream.instances(name) {
			_, fails := d.c.play(name, attempt%lifeAttempts).Fails["readiness"]
			if !fails && attempt%lifeAttempts > 0 && s.since.After(in.began) && s.since.Sub(in.began) < settled && d.upstream.makesSandbox(in.began) {
				return true
			}
		}
		return false
	})
}

// readyAtNewAddress reports whether the values w of a condition, which only Wherry reported, only say that all containers are ready, because one is
// that upstream's kubelet asks at the address of the sandbox that was lost.
func (d *differ) readyAtNewAddress(aspect string, wherry []span, w []string) bool {
	if !strings.HasPrefix(aspect, "condition Ready") && !strings.HasPrefix(aspect, "condition ContainersReady") {
		return false
	}
	return stood(wherry, w, func(s span) bool {
		return s.value == "True" && slices.ContainsFunc(d.c.containers(), func(name string) bool {
			return slices.ContainsFunc(d.wherry.readiness(name), func(one span) bool {
				number, ready := strings.CutSuffix(one.value, " ready=true started=true")
				return ready && one.since.Sub(s.since).Abs() < time.Second &&
					d.asksOldAddress(name, d.upstream.readiness(name), []string{number + " ready=false started=true"})
			})
		})
	})
}

// makesSandbox reports whether the agent made another sandbox than the pod's first in the two seconds before the time at.
func (t *Trace) makesSandbox(at time.Time) bool {
	return slices.ContainsFunc(t.Calls, func(c Call) bool {
		return c.Verb == "RunPodSandbox" && c.At.After(t.Created.Add(settled)) && !c.At.After(at) && at.Sub(c.At) < settled
	})
}

// classKillsUnknown is the class for an event about the stop of an init container for which upstream's kubelet gives a wrong place.
const classKillsUnknown = "event Normal Killing of an init container: upstream has it at spec.containers"

// killsUnknown reports whether k is the key of an event Killing about an init container that upstream's kubelet has at spec.containers and
// Wherry at spec.initContainers.
func (d *differ) killsUnknown(k string) bool {
	name := containerOf(k)
	right, wrong := "Normal Killing spec.initContainers{"+name+"}", "Normal Killing spec.containers{"+name+"}"
	if k != right && k != wrong || !slices.ContainsFunc(d.c.Spec.InitContainers, func(x v1.Container) bool { return x.Name == name }) {
		return false
	}
	return d.upstream.Events[wrong].Count > 0 && d.upstream.Events[right].Count == 0 && d.wherry.Events[right].Count > 0
}

// lostInKill reports whether an agent that was killed has no such event, and the other agent sent it before the time of the kill. (A trace
// without such a time is that of a pod that had ended before.)
func (d *differ) lostInKill(u, w Event) bool {
	before := func(e Event, of, lost *Trace) bool {
		return e.First.IsZero() || len(lost.Downs) == 0 || e.First.Sub(of.Created) < lost.Downs[0].From.Sub(lost.Created)
	}
	switch {
	case !d.c.Kill:
		return false
	case u.Count == 0:
		return before(w, d.wherry, d.upstream)
	case w.Count == 0:
		return before(u, d.upstream, d.wherry)
	}
	return false
}

// pulls reports whether k is the key of an event about the pull of an image.
func pulls(k string) bool {
	return slices.Contains([]string{"Pulling", "Pulled", "Failed"}, strings.Fields(k)[1])
}

// pullsLast reports whether only one agent tells of the pull of an image, for a container that neither agent made, and only in the last five
// seconds before the pod's deletion: the other agent, a little later, did not come to it.
func (d *differ) pullsLast(k string, u, w Event) bool {
	name := containerOf(k)
	if !pulls(k) || name == "" || (u.Count == 0) == (w.Count == 0) || len(d.upstream.instances(name))+len(d.wherry.instances(name)) > 0 {
		return false
	}
	last := func(t *Trace, e Event) bool { return e.Count == 0 || e.First.After(t.Deleted.Add(-late)) }
	return last(d.upstream, u) && last(d.wherry, w)
}

// pullsMeanwhile reports whether Wherry prepared the next instance of a container, and told of its image, because the container exited while
// upstream's kubelet waited for the end of another one.
func (d *differ) pullsMeanwhile(k string, u, w Event) bool {
	name := containerOf(k)
	if !pulls(k) || w.Count != u.Count+1 || !d.sameNumber(name) {
		return false
	}
	return slices.ContainsFunc(d.stopWaits(), func(x wait) bool {
		if x.container == name || x.to-x.from < settled {
			return false
		}
		for attempt, in := range d.wherry.instances(name) {
			p := d.c.play(name, attempt%lifeAttempts)
			if ends := in.began.Add(p.Runs).Sub(d.wherry.Created); p.Exits && ends > x.from && ends < x.to && d.wherry.instances(name)[attempt+1] == nil {
				return true
			}
		}
		return false
	})
}

// killsMeanwhile reports whether Wherry stopped a container for a failed probe while upstream's kubelet waited for the postStart hook of another
// container, or for that one to end after its hook had failed. The pod ended with that wait, and the kubelet stopped the container for that.
func (d *differ) killsMeanwhile(k string, u, w Event) bool {
	name := containerOf(k)
	probed := strings.HasSuffix(w.Message, " failed liveness probe") || strings.HasSuffix(w.Message, " failed startup probe")
	if strings.Fields(k)[1] != "Killing" || !strings.HasPrefix(u.Message, "Stopping container ") || !probed || !d.sameNumber(name) {
		return false
	}
	return slices.ContainsFunc(d.hookWaits(), func(x wait) bool {
		for attempt, other := range d.wherry.instances(name) {
			at := other.stopped.Sub(d.wherry.Created)
			if d.upstream.instances(name)[attempt] != nil && x.container != name && !other.stopped.IsZero() && at > x.from && at < x.to {
				return true
			}
		}
		return false
	})
}

// withoutChances removes from the values that only one agent reported those that depend on the moments at which it asks a readiness probe.
func (d *differ) withoutChances(aspect, name string, values []string) []string {
	switch {
	case strings.HasPrefix(aspect, "readiness"):
		return slices.DeleteFunc(values, func(v string) bool { return strings.HasSuffix(v, " started=true") && d.readyByChance(name) })
	case aspect == "condition "+string(v1.PodReady), aspect == "condition "+string(v1.ContainersReady):
		by := slices.ContainsFunc(d.c.containers(), d.readyByChance)
		return slices.DeleteFunc(values, func(v string) bool { return by && (v == "True" || v == "False ContainersNotReady") })
	}
	return values
}

// readyByChance reports whether the timing decides if an agent sees the readiness probe of a container succeed: the probe begins to fail at
// about the time when it would have succeeded often enough, or it ceases to fail at about the time when the container is stopped.
func (d *differ) readyByChance(name string) bool {
	p := d.c.probe(name, "readiness")
	if p == nil {
		return false
	}
	for _, t := range []*Trace{d.upstream, d.wherry} {
		for attempt, in := range t.instances(name) {
			play := d.c.play(name, attempt%lifeAttempts)
			fails, does := play.Fails["readiness"]
			if !does {
				continue
			}
			enough := time.Duration(max(p.SuccessThreshold, 1)-1) * time.Second
			asked := d.c.asked(name, "readiness", play)
			if hook := play.Slow["postStart"]; asked.first == never && hook > 0 { // the startup probe begins after the hook, and may succeed all the same
				to := play.Fails["startup"].To
				asked = interval{to, to + probed}
			}
			if fails.From > asked.first && fails.From <= asked.last+enough+play.Slow["postStart"] {
				return true
			}
			if stopped := in.stopped.Sub(in.began); !in.stopped.IsZero() && fails.To > 0 && stopped > fails.To && stopped-fails.To <= probed+enough+time.Second {
				return true
			}
		}
	}
	return false
}
