package probe

import (
	"cmp"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/mergepatch"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// These constants are the waits before quick probes, which run before the first regular probe to make a pod ready sooner. The first quick
// probe runs as soon as the container runs; each next wait is twice as long. An exec probe costs more than a connection, so it waits
// longer.
const (
	quickNetwork = 100 * time.Millisecond
	quickExec    = 500 * time.Millisecond
)

// runner is one probe of one container.
//
//	gated ──► in the heap ──► waits in the scheduler ──► running ──┬─► in the heap
//	(until started)           (a command, under load)              └─► done (startup succeeded, or liveness or startup failed for good)
type runner struct {
	due.Place // position in the heap, ordered by when the probe runs next

	c    *container
	kind Kind
	spec *v1.Probe

	regular time.Time     // when the next regular probe is due; only regular probes count as failures
	quick   time.Duration // wait before the next quick probe; 0: no more quick probes
	job     *work.Job     // the scheduler's job for the command that waits or runs; nil: none
	pace    work.Pace     // how long the probe's command usually takes
	cancel  context.CancelFunc
	dropped bool
	held    bool // other checks of the same pod delay the next run, or delayed the one in flight

	last  Outcome
	times int // number of successive runs with the outcome in the field last
	// failed is true if the last check failed, also if it was a quick probe; output is what that check printed.
	failed bool
	output string
}

// specOf returns the probe of a kind, or nil.
func specOf(c *v1.Container, k Kind) *v1.Probe {
	switch k {
	case Startup:
		return c.StartupProbe
	case Liveness:
		return c.LivenessProbe
	case Readiness:
		return c.ReadinessProbe
	case kinds:
	}
	return nil
}

// adopt returns the container for a target: the known one with its results, or a new one. It is called with the lock held.
func (p *Probes) adopt(ref pod.Ref, old []*container, t Target, now time.Time) *container {
	for _, c := range old {
		if c.target.ContainerID != t.ContainerID || !sameProbes(c.target.Spec, t.Spec) {
			continue
		}
		if t.Initial != nil && c.target.Initial == nil && c.learns(t.Initial) {
			break // the container's state in the API has become known: begin anew with it
		}
		t.StartedAt, t.Initial = c.target.StartedAt, cmp.Or(c.target.Initial, t.Initial)
		c.target = t
		if t.Terminating {
			p.halt(c, Liveness)
			p.halt(c, Startup)
		}
		return c
	}
	// The runtime's times come from the wall clock, which may have been set back since the container started. A start in the future
	// would delay all probes until then. From here on, the times are monotonic and no clock change moves them.
	t.StartedAt = now.Add(-max(0, now.Sub(t.StartedAt)))
	c := &container{ref: ref, target: t}
	c.state.Started = t.Spec.StartupProbe == nil || (t.Initial != nil && t.Initial.Started)
	c.ready = t.Spec.ReadinessProbe == nil || (t.Initial != nil && t.Initial.Ready)
	c.state.Ready = c.state.Started && c.ready
	if !c.state.Started {
		p.begin(c, Startup, t.StartedAt, now)
		return c
	}
	p.begin(c, Liveness, t.StartedAt, now)
	p.begin(c, Readiness, t.StartedAt, now)
	return c
}

// learns reports whether i, the container's state in the API from before this agent started, says more than c knows: that the container
// is started or ready, while no probe of this agent has a result yet.
func (c *container) learns(i *Initial) bool {
	if c.state.Unhealthy {
		return false
	}
	for _, r := range c.runners {
		if r != nil && r.times > 0 {
			return false
		}
	}
	return i.Started && !c.state.Started || i.Ready && !c.state.Ready
}

// sameProbes reports whether two specs of a container have equal probes.
func sameProbes(a, b *v1.Container) bool {
	return a == b || (mergepatch.Equal(a.StartupProbe, b.StartupProbe) &&
		mergepatch.Equal(a.LivenessProbe, b.LivenessProbe) &&
		mergepatch.Equal(a.ReadinessProbe, b.ReadinessProbe) &&
		mergepatch.Equal(&a.Ports, &b.Ports))
}

// begin puts a probe in the heap for the first time. since is the earliest time for a probe: the start of the container, or the
// success of its startup probe.
func (p *Probes) begin(c *container, k Kind, since, now time.Time) {
	spec := specOf(c.target.Spec, k)
	if spec == nil || (c.target.Terminating && k != Readiness) {
		return
	}
	r := &runner{c: c, kind: k, spec: spec}
	c.runners[k] = r
	period, delay := period(spec), seconds(spec.InitialDelaySeconds)
	switch {
	case now.Sub(c.target.StartedAt) > delay+period && since.Equal(c.target.StartedAt):
		// The container has run for a while, so the agent was restarted and has many containers to probe. A random delay spreads the
		// probes.
		r.regular = now.Add(time.Duration(p.rand.Int64N(int64(period))))
		for _, twin := range c.runners { // an equal probe of the container gets the same time, so that one run serves both
			if twin != nil && twin != r && identical(twin, r) && twin.regular.Before(now.Add(period)) {
				r.regular = twin.regular
			}
		}
	case delay > 0:
		r.regular = later(c.target.StartedAt.Add(delay), now)
	default:
		r.regular = later(since.Add(period), now)
	}
	at := r.regular
	if wantsQuick(r) && now.Sub(since) < period+delay {
		r.quick = quickNetwork
		if spec.Exec != nil {
			r.quick = quickExec
		}
		first := later(c.target.StartedAt.Add(delay), since)
		if first.Before(at) {
			at = later(first, now)
		}
	}
	p.timers.Put(r, at)
	p.nudge()
}

// wantsQuick reports whether quick probes help, because the container is not started or not ready until this probe succeeds.
func wantsQuick(r *runner) bool {
	switch r.kind {
	case Startup:
		return !r.c.state.Started
	case Readiness:
		return !r.c.ready
	case Liveness, kinds:
	}
	return false
}

// again puts a probe back in the heap after a run.
func (p *Probes) again(r *runner, counted bool, now time.Time) {
	period := period(r.spec)
	if counted {
		r.regular = later(r.regular.Add(period), now)
	}
	at := r.regular
	if r.quick > 0 {
		next := now.Add(r.quick)
		if r.quick *= 2; r.quick >= 2*period || !wantsQuick(r) {
			r.quick = 0
		} else if next.Before(at) {
			at = next
		}
	}
	p.timers.Put(r, at)
	p.nudge()
}

// halt ends one probe of a container. It is called with the lock held.
func (p *Probes) halt(c *container, k Kind) {
	r := c.runners[k]
	if r == nil {
		return
	}
	c.runners[k] = nil
	r.dropped = true
	p.takesOut(r)
	if r.cancel != nil {
		r.cancel()
		return
	}
	p.givesUp(r)
}

func (p *Probes) drop(c *container) {
	for k := range kinds {
		p.halt(c, k)
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// period returns the time between two probes: "Default to 10 seconds. The minimum value is 1."
func period(p *v1.Probe) time.Duration {
	if p.PeriodSeconds <= 0 {
		return 10 * time.Second
	}
	return seconds(p.PeriodSeconds)
}

// timeout returns the time limit of a run: "Defaults to 1 second. Minimum value is 1."
func timeout(p *v1.Probe) time.Duration { return seconds(max(p.TimeoutSeconds, 1)) }

// thresholds returns successThreshold (default 1) and failureThreshold (default 3).
func thresholds(p *v1.Probe) (success, failure int) {
	success, failure = int(max(p.SuccessThreshold, 1)), int(p.FailureThreshold)
	if failure <= 0 {
		failure = 3
	}
	return success, failure
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
