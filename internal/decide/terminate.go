package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// end says why the whole pod has to end, or nothing. Once it has begun to end it never comes back.
func (t *turn) end() pod.Why {
	in := t.in
	if in.Pod == nil {
		switch {
		case !in.Node.SourcesReady && !in.Memory.Orphaned:
			t.plan.Why = WhySources
			return ""
		case t.stale && in.Memory.StopBegan.IsZero():
			t.plan.Why = WhyInspect // its containers say how much time they get
			return ""
		}
		t.plan.Orphaned = true
		return WhyUnwanted
	}
	switch {
	case in.Memory.Orphaned:
		t.plan.Orphaned = true
		return WhyUnwanted
	case in.Memory.Stop != nil && in.Memory.Stop.Rejected:
		return WhyRejected
	case in.Pod.DeletionTimestamp != nil:
		return WhyDeleted
	case in.Memory.Stop != nil && in.Memory.Stop.Reason == ReasonDeadlineExceeded:
		return WhyDeadline
	case in.Memory.Stop != nil:
		return WhyStopped
	case in.Pod.Status.Phase == v1.PodFailed || in.Pod.Status.Phase == v1.PodSucceeded:
		return WhyTerminal
	}
	if why := t.finished(); why != "" {
		t.plan.Finished = true
		return why
	}
	if at := t.deadline(); !at.IsZero() && !in.Now.Before(at) {
		t.plan.Stop = &Stop{Reason: ReasonDeadlineExceeded, Message: MessageDeadlineExceeded, Since: in.Now}
		return WhyDeadline
	}
	if !in.Memory.StopBegan.IsZero() { // its reason is gone, the end is not
		return WhyStopped
	}
	return ""
}

// deadline is when the pod's own time is over; zero: never.
func (t *turn) deadline() time.Time {
	ads := t.in.Pod.Spec.ActiveDeadlineSeconds
	if ads == nil {
		return time.Time{}
	}
	start := t.in.Memory.StartTime
	// Of a static pod the status comes from its mirror, which others can write to.
	if pod.IsStatic(t.in.Pod) && !start.IsZero() {
		return start.Add(seconds(*ads))
	}
	if st := t.in.Pod.Status.StartTime; st != nil && (start.IsZero() || st.Time.Before(start)) {
		start = st.Time
	}
	if start.IsZero() {
		return time.Time{}
	}
	return start.Add(seconds(*ads))
}

// terminate ends the pod: containers within the grace period, then sandboxes, then volumes and cgroup; what is
// left stays for its logs until no source has the pod.
func (t *turn) terminate(why pod.Why) {
	t.ending = true
	t.plan.Ending = true
	t.plan.Phase = PhaseStopping
	t.plan.Why = why
	t.graceClock()
	t.cancelPulls()
	t.cancelDeadHooks()
	alive := t.stopAlive(why, false)
	switch {
	case alive:
		t.wake(t.plan.StopBegan.Add(t.plan.StopGrace))
		return
	case t.busy(pod.OpRunSandbox) || t.busy(pod.OpStartContainer) || t.stale:
		return
	case t.stopSandboxes(why):
		return
	}
	t.plan.Ended = true
	if !t.neverBegan() && !t.in.Memory.TornDown {
		if !t.busy(pod.OpSetUp) && t.due(pod.OpTearDown, "") {
			t.begin(pod.Action{Op: pod.OpTearDown, Why: WhyTearDown})
		}
		return
	}
	if t.plan.Orphaned {
		t.clear()
		return
	}
	t.plan.Phase = PhaseStopped
	t.prune()
}

// neverBegan: a rejected pod has nothing to tear down.
func (t *turn) neverBegan() bool {
	m := t.in.Memory
	return m.Stop != nil && m.Stop.Rejected && !m.SetUp && !t.plan.Orphaned && t.in.Observed.Empty() && len(t.in.InFlight) == 0
}

// cancelPulls cuts short what would only bring the pod up.
func (t *turn) cancelPulls() {
	for _, a := range t.in.InFlight {
		if a.Op == pod.OpPullImage {
			t.cancel(a, WhyEndingCancel)
		}
	}
}

// graceClock starts or continues the clock of the grace period. It may only become shorter.
func (t *turn) graceClock() {
	m := t.in.Memory
	t.plan.StopBegan, t.plan.StopGrace = m.StopBegan, m.StopGrace
	if m.StopBegan.IsZero() {
		t.plan.StopBegan = t.in.Now
		t.plan.StopGrace = t.podGrace()
		return
	}
	if t.in.Pod != nil || t.in.LastGrace != nil {
		t.plan.StopGrace = min(m.StopGrace, t.podGrace())
	}
}

// leastPodGrace is what a pod has that is to end at once: "Pods that are set to terminate immediately will still be given a
// small grace period before being force killed."
const leastPodGrace = time.Second

// podGrace is the grace period as everyone who ends the pod wants it now: the shortest counts.
func (t *turn) podGrace() time.Duration { return max(t.askedGrace(), leastPodGrace) }

func (t *turn) askedGrace() time.Duration {
	in := t.in
	if in.Pod == nil {
		return t.orphanGrace()
	}
	grace := specGrace(&in.Pod.Spec)
	if s := in.Pod.DeletionGracePeriodSeconds; s != nil {
		grace = seconds(*s)
	}
	if in.Memory.Stop != nil && in.Memory.Stop.Grace != nil {
		grace = min(grace, max(*in.Memory.Stop.Grace, 0))
	}
	return grace
}

// orphanGrace is what was said last or, where nothing was, what the containers themselves say: no object is left to ask.
func (t *turn) orphanGrace() time.Duration {
	if s := t.in.LastGrace; s != nil {
		return seconds(*s)
	}
	grace := -time.Nanosecond // nobody has said
	for i := range t.in.Observed.Containers {
		grace = max(grace, t.in.Observed.Containers[i].Grace)
	}
	if grace < 0 {
		return DefaultGrace
	}
	return grace
}

// left is the rest of the pod's grace period; never more than all of it, whatever became of the clock.
func (t *turn) left() time.Duration {
	return min(t.plan.StopBegan.Add(t.plan.StopGrace).Sub(t.in.Now), t.plan.StopGrace)
}

// graceShrank reports whether this turn is the first to know of a shorter grace period.
func (t *turn) graceShrank() bool {
	return t.plan.StopGrace < t.in.Memory.StopGrace
}

// stopAlive ends every living container, sidecars last and in reverse order ("the kubelet will delay sending the TERM
// signal to these sidecar containers until the last main container has fully terminated. The sidecar containers will be
// terminated in the reverse order they are defined in the Pod spec"). It reports whether any is alive. At once: all together, without hooks, with the smallest grace.
func (t *turn) stopAlive(why pod.Why, atOnce bool) bool {
	alive := false
	for i := range t.in.Observed.Containers {
		c := &t.in.Observed.Containers[i]
		if !t.alive(c) {
			continue
		}
		alive = true
		left, cause, begun := time.Duration(0), pod.CauseNone, len(t.plan.Do)
		switch {
		case t.ending:
			left = t.left()
		case atOnce:
			cause = pod.CauseRestartAll
		default:
			cause = pod.CauseSandbox
			left = t.alone(c, cause)
		}
		t.killInTurn(c, left, cause, why, t.blocked(c))
		if len(t.plan.Do) > begun && cause == pod.CauseSandbox {
			t.replace(cause, c)
		}
	}
	return alive
}

// blocked reports whether a sidecar has to outlive another container that is alive.
func (t *turn) blocked(c *pod.Container) bool {
	rank := t.initRank(c.Name)
	if rank == noRank {
		return false
	}
	for i := range t.in.Observed.Containers {
		o := &t.in.Observed.Containers[i]
		if !t.alive(o) || t.isEphemeral(o.Name) {
			continue
		}
		if other := t.initRank(o.Name); other == noRank || other > rank {
			return true
		}
	}
	return false
}

const noRank = -1

// initRank is the place of a container among the init containers. (Of those that are no sidecars none lives beside what
// comes after it.)
func (t *turn) initRank(name string) int {
	if t.in.Pod == nil { // it is as it was
		if cm := t.memory(name); cm.Kind == pod.KindInit {
			return int(cm.Place)
		}
		return noRank
	}
	for i := range t.in.Pod.Spec.InitContainers {
		if t.in.Pod.Spec.InitContainers[i].Name == name {
			return i
		}
	}
	return noRank
}

func (t *turn) isEphemeral(name string) bool {
	if t.in.Pod == nil {
		return t.memory(name).Kind == pod.KindEphemeral
	}
	for i := range t.in.Pod.Spec.EphemeralContainers {
		if t.in.Pod.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}
