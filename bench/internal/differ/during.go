package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The functions in this file find evidence of decided (intended) differences that come from what is under way in the pod: a postStart hook,
// a restart of the agents, or the pod's end.

// hookResent reports whether both agents were restarted while the postStart hook of a container ran, and only Wherry ran the hook of this
// instance again.
func (d *differ) hookResent() bool {
	ran := func(t *Trace, c Call) (n int) {
		for _, other := range t.Calls {
			if other.Command == "postStart" && other.Container == c.Container && other.Attempt == c.Attempt {
				n++
			}
		}
		return n
	}
	return slices.ContainsFunc(d.wherry.Calls, func(c Call) bool {
		return c.Command == "postStart" && ran(d.wherry, c) > 1 && ran(d.upstream, c) == 1 && slices.ContainsFunc(d.wherry.Downs, func(down Down) bool {
			ends := c.At.Add(d.c.play(c.Container, c.Attempt%lifeAttempts).Slow["postStart"])
			return c.At.Before(down.To) && down.From.Before(ends)
		})
	})
}

// probedAfterHook reports whether the result of a container's startup or liveness probe changed while upstream's kubelet waited for the
// postStart hook of another container, and only one agent then stopped the container before the pod's deletion. The kubelet had started
// both containers one after the other, so it had not reported the first one, and does not probe what it has not reported.
func (d *differ) probedAfterHook() bool {
	return slices.ContainsFunc(d.hookWaits(), func(w wait) bool {
		return slices.ContainsFunc(d.c.containers(), func(name string) bool {
			for attempt, u := range d.upstream.instances(name) {
				v := d.wherry.instances(name)[attempt]
				began := u.began.Sub(d.upstream.Created)
				if v == nil || !d.unreportedIn(w, name, u) || u.stopsBefore(d.upstream.Deleted) == v.stopsBefore(d.wherry.Deleted) {
					continue
				}
				for _, probe := range []string{"startup", "liveness"} {
					fails, does := d.c.play(name, attempt%lifeAttempts).Fails[probe]
					during := func(at time.Duration) bool { return began+at > w.from && began+at < w.to }
					if does && d.c.probe(name, probe) != nil && (during(fails.From) || during(fails.To)) {
						return true
					}
				}
			}
			return false
		})
	})
}

// unreportedIn reports whether upstream's kubelet started an instance right before the wait for the postStart hook of another container, so that
// it reports and probes the instance only after the wait.
func (d *differ) unreportedIn(w wait, name string, in *instance) bool {
	began := in.began.Sub(d.upstream.Created)
	return w.to-w.from >= settled && name != w.container && began <= w.from && w.from-began <= settled
}

// readyBeforeProbed reports whether only Wherry tells of failures of a readiness probe, since upstream's kubelet waited for the postStart hook
// of another container until the probe no longer failed.
func (d *differ) readyBeforeProbed(name, probe string, u, w Event) bool {
	return probe == "readiness" && u.Count == 0 && w.Count > 0 && slices.ContainsFunc(d.hookWaits(), func(x wait) bool {
		for attempt, in := range d.upstream.instances(name) {
			fails, does := d.c.play(name, attempt%lifeAttempts).Fails[probe]
			if does && fails.To > 0 && d.unreportedIn(x, name, in) && in.began.Sub(d.upstream.Created)+fails.To <= x.to {
				return true
			}
		}
		return false
	})
}

// stopsBefore reports whether the agent asked the instance to end before the time at.
func (in *instance) stopsBefore(at time.Time) bool {
	return !in.stopped.IsZero() && in.stopped.Before(at)
}

// sidecarInTheEnd reports whether both agents stopped the last main container, which has a startup or liveness probe, before the pod's
// deletion, and only Wherry then restarted a sidecar.
func (d *differ) sidecarInTheEnd() bool {
	if !d.ends(d.upstream).Before(d.upstream.Deleted) {
		return false
	}
	return slices.ContainsFunc(d.c.Spec.Containers, func(x v1.Container) bool {
		u, w := newest(d.upstream.instances(x.Name)), newest(d.wherry.instances(x.Name))
		if x.LivenessProbe == nil && x.StartupProbe == nil || u == nil || w == nil || !u.stopsBefore(d.upstream.Deleted) || !w.stopsBefore(d.wherry.Deleted) {
			return false
		}
		return slices.ContainsFunc(d.c.Spec.InitContainers, func(side v1.Container) bool {
			for attempt, in := range d.wherry.instances(side.Name) {
				again := attempt%lifeAttempts > 0 && d.c.kind(side.Name) == "sidecar" && d.upstream.instances(side.Name)[attempt] == nil
				if again && in.began.After(w.stopped.Add(-time.Second)) && in.began.Before(d.wherry.Deleted) {
					return true
				}
			}
			return false
		})
	})
}

// reportedInTheEnd returns the class of a difference in what the agents report while the pod ends, if the traces prove that it is decided;
// otherwise "". u and w are the values that only upstream's kubelet and only Wherry reported, and wherry is all that Wherry reported.
func (d *differ) reportedInTheEnd(aspect, name string, wherry []span, u, w []string) string {
	switch {
	case d.hearsNobody(aspect, name, u, w):
		return classHearsNobody
	case strings.HasPrefix(aspect, "readiness") && len(w) == 0 && d.c.kind(name) == "sidecar" && d.c.probe(name, "startup") != nil &&
		all(u, func(v string) bool {
			attempt, _, _ := strings.Cut(v, " ")
			return strings.HasSuffix(v, " started=true") && slices.Contains(values(wherry), attempt+" ready=false started=false")
		}):
		return classStartsInItsEnd
	case strings.HasPrefix(aspect, "condition Initialized ") && len(w) == 0 && slices.Equal(u, []string{"True"}) && d.startsInItsEnd():
		return classStartsInItsEnd
	case strings.HasPrefix(aspect, "states of") && len(w) == 0 && slices.Equal(u, []string{d.pullForgotten(name)}):
		return classPullForgotten
	case strings.HasPrefix(aspect, "readiness") && d.hookCutShort(name, u, w):
		return classHookCutShort
	}
	return ""
}

// hookCutShort reports whether the pod's deletion came while the postStart hook of the container's only instance ran, and only Wherry cut the
// hook short: then only upstream's kubelet shows that the container has started (the values u and w).
func (d *differ) hookCutShort(name string, u, w []string) bool {
	in, other := d.upstream.instances(name)[0], d.wherry.instances(name)[0]
	takes := d.c.play(name, 0).Slow["postStart"]
	if in == nil || other == nil || len(d.upstream.instances(name)) > 1 || !d.sameNumber(name) || d.c.probe(name, "startup") != nil {
		return false
	}
	cut := func(t *Trace, in *instance) bool {
		return !in.stopped.Before(t.Deleted) && in.stopped.Before(in.began.Add(takes))
	}
	begun := slices.Contains(in.calls, "postStart") && slices.Contains(other.calls, "postStart")
	return begun && cut(d.wherry, other) && !in.stopped.Before(in.began.Add(takes)) &&
		slices.Equal(w, []string{"0 ready=false started=false"}) && all(u, func(v string) bool { return strings.HasSuffix(v, " started=true") })
}

// hookFailsInTheEnd reports whether the postStart hook of a container failed after the pod's deletion, which gave a grace period of its own, and
// upstream's kubelet then stopped the container with what was left of the pod's grace period, while Wherry stopped it with what was left of the
// deletion's. Nothing else differs between the requests about the container.
func (d *differ) hookFailsInTheEnd() bool {
	i := slices.IndexFunc(d.c.Acts, func(a Act) bool { return a.Do == Delete })
	if i < 0 || d.c.Spec.TerminationGracePeriodSeconds == nil {
		return false
	}
	return slices.ContainsFunc(d.c.containers(), func(name string) bool {
		for attempt, u := range d.upstream.instances(name) {
			w, p := d.wherry.instances(name)[attempt], d.c.play(name, attempt%lifeAttempts)
			_, fails := p.Fails["postStart"]
			if !fails || w == nil || !u.began.Before(d.upstream.Deleted) || u.began.Add(p.Slow["postStart"]).Before(d.upstream.Deleted) || sameCalls(u.calls, w.calls) {
				continue
			}
			if sameCalls(withStop(u.calls, 0), withStop(w.calls, 0)) &&
				sameCalls(withStop(u.calls, p.rest(*d.c.Spec.TerminationGracePeriodSeconds, u.calls)), u.calls) &&
				sameCalls(withStop(w.calls, p.rest(d.c.Acts[i].Grace, w.calls)), w.calls) {
				return true
			}
		}
		return false
	})
}

// withStop returns the calls with another timeout of the stop.
func withStop(calls []string, timeout int64) []string {
	out := slices.Clone(calls)
	for i, call := range out {
		if stopCall.MatchString(call) {
			out[i] = fmt.Sprintf("stop(%d)", timeout)
		}
	}
	return out
}

// rest returns what is left of a grace period when the instance is stopped: after a preStop hook at least two seconds.
func (p Play) rest(grace int64, calls []string) int64 {
	if slices.Contains(calls, "preStop") {
		return max(grace-int64(p.Slow["preStop"]/time.Second), 2)
	}
	return grace
}

// startsInItsEnd reports whether upstream's kubelet showed while the pod ended that a sidecar had started, and Wherry never showed that of the
// same instance.
func (d *differ) startsInItsEnd() bool {
	return slices.ContainsFunc(d.c.Spec.InitContainers, func(x v1.Container) bool {
		wherry := values(d.wherry.readiness(x.Name))
		return x.StartupProbe != nil && d.c.kind(x.Name) == "sidecar" && slices.ContainsFunc(d.upstream.readiness(x.Name), func(s span) bool {
			attempt, _, _ := strings.Cut(s.value, " ")
			started := func(v string) bool {
				return strings.HasPrefix(v, attempt+" ") && strings.HasSuffix(v, " started=true")
			}
			return started(s.value) && !s.since.Before(d.ends(d.upstream)) && slices.Contains(wherry, attempt+" ready=false started=false") && !slices.ContainsFunc(wherry, started)
		})
	})
}

// initEndsInTheEnd reports whether Wherry reported, while the pod ended, that its init containers are done (the values w of the condition
// Initialized), and one of them exited with 0 after the end had begun.
func (d *differ) initEndsInTheEnd(aspect string, w []string) bool {
	return strings.HasPrefix(aspect, "condition Initialized ") && slices.Equal(w, []string{"True"}) && slices.ContainsFunc(d.c.Spec.InitContainers, func(x v1.Container) bool {
		last := newest(d.wherry.instances(x.Name))
		if d.c.kind(x.Name) != "init" || last == nil {
			return false
		}
		p := d.c.play(x.Name, uint32(len(d.wherry.instances(x.Name))-1))
		return p.Exits && p.Code == 0 && last.began.Add(p.Runs).After(d.ends(d.wherry))
	})
}

// tellsFailed returns when the API first showed that the pod is not ready because it has failed; zero: never.
func (t *Trace) tellsFailed() time.Time {
	for _, s := range t.condition(v1.PodReady) {
		if s.value == "False PodFailed" {
			return s.since
		}
	}
	return time.Time{}
}

// tellsWithoutSandbox reports whether the agent removed the pod's sandbox before it wrote the pod's last status, and an earlier status had
// an address.
func (t *Trace) tellsWithoutSandbox() bool {
	last := t.last()
	addressed := slices.ContainsFunc(t.Statuses, func(s Seen) bool { return len(s.Pod.Status.PodIPs) > 0 })
	return addressed && slices.ContainsFunc(t.Calls, func(c Call) bool {
		return c.Verb == "RemovePodSandbox" && slices.ContainsFunc(t.Statuses, func(s Seen) bool { return s.Pod == last && s.At.After(c.At) })
	})
}
