package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// end returns the cause for which the whole pod has to end, or CauseNone. A pod that has begun to end never runs again.
func (t *turn) end() pod.Cause {
	in, stop := t.in, t.in.Memory.Stop
	if in.Pod == nil {
		switch {
		case !in.Node.SourcesReady && !in.Memory.Orphaned:
			t.plan.Why = WhySources
			return pod.CauseNone
		case t.stale && in.Memory.StopBegan.IsZero():
			t.plan.Why = WhyInspect // first an inspection must read the grace period from the annotations of the pod's containers
			return pod.CauseNone
		}
		t.plan.Orphaned = true
		return pod.CauseUnwanted
	}
	switch {
	case in.Memory.Orphaned:
		t.plan.Orphaned = true
		return pod.CauseUnwanted
	case stop != nil && stop.Rejected:
		return pod.CauseRejected
	case in.Pod.DeletionTimestamp != nil:
		return pod.CauseDeleted
	case stop != nil && stop.Reason == ReasonDeadlineExceeded:
		return pod.CauseDeadline
	case stop != nil:
		return pod.CauseStopped
	case in.Pod.Status.Phase == v1.PodFailed || in.Pod.Status.Phase == v1.PodSucceeded:
		return pod.CauseTerminal
	}
	if cause := t.finished(); cause != pod.CauseNone {
		t.plan.Finished = true
		return cause
	}
	if at := t.deadline(); !at.IsZero() && !in.Now.Before(at) {
		t.plan.Stop = &Stop{Reason: ReasonDeadlineExceeded, Message: MessageDeadlineExceeded, Since: in.Now}
		return pod.CauseDeadline
	}
	if t.plan.Stop = t.volumeLimit(); t.plan.Stop != nil {
		return pod.CauseStopped
	}
	if !in.Memory.StopBegan.IsZero() { // the reason to end the pod no longer holds, but a pod that has begun to end never runs again
		return pod.CauseStopped
	}
	return pod.CauseNone
}

// volumeLimit returns the reason to end a pod that waits for a volume which this node cannot have, because it has too many of the CSI driver;
// nil: the pod does not, or one of its containers runs. A static pod waits, because nobody makes another one for another node.
func (t *turn) volumeLimit() *Stop {
	m := t.in.Memory
	if m.SetUp || t.in.Observed.AnyAlive() || pod.IsStatic(t.in.Pod) {
		return nil
	}
	for i := range m.Retry {
		if r := &m.Retry[i]; r.Op == pod.OpSetUp && r.Lack == pod.LackVolumeLimit {
			return &Stop{Reason: ReasonVolumeLimit, Message: messageVolumeLimit + eventVolumeLimit + r.Message, Since: t.in.Now}
		}
	}
	return nil
}

// deadline returns when the activeDeadlineSeconds of the pod are over; zero: never.
func (t *turn) deadline() time.Time {
	ads := t.in.Pod.Spec.ActiveDeadlineSeconds
	if ads == nil {
		return time.Time{}
	}
	start := t.in.Memory.StartTime
	// The status of a static pod comes from its mirror, which other clients can change.
	if pod.IsStatic(t.in.Pod) && !start.IsZero() {
		return start.Add(pod.Seconds(*ads))
	}
	if st := t.in.Pod.Status.StartTime; st != nil && (start.IsZero() || st.Time.Before(start)) {
		start = st.Time
	}
	if start.IsZero() {
		return time.Time{}
	}
	return start.Add(pod.Seconds(*ads))
}

// terminate ends the pod: it stops the containers within the grace period, then the sandboxes, then tears down volumes and
// cgroup. The stopped containers stay, for their logs, until no source has the pod.
func (t *turn) terminate(cause pod.Cause) {
	why := ruleOf(cause).why
	t.ending = true
	t.plan.Ending = true
	t.plan.Phase = PhaseStopping
	t.plan.Why = why
	t.graceClock()
	t.step(ruleGrace, "")
	t.cancelPulls()
	t.cancelDeadHooks()
	alive := t.stopAlive(cause, why)
	if alive {
		t.wake(t.plan.StopBegan.Add(t.plan.StopGrace))
	}
	t.step(ruleStop, "")
	if alive || t.busy(pod.OpRunSandbox) || t.busy(pod.OpStartContainer) || t.stale {
		return
	}
	left := t.stopSandboxes(why)
	t.step(ruleStopSandboxes, "")
	if left {
		return
	}
	t.plan.Ended = true
	if !t.neverBegan() && !t.in.Memory.TornDown {
		if !t.busy(pod.OpSetUp) && t.due(pod.OpTearDown, "") {
			t.begin(pod.Action{Op: pod.OpTearDown, Why: WhyTearDown})
		}
		t.step(ruleTearDown, "")
		return
	}
	if t.plan.Orphaned {
		t.clear()
		t.step(ruleClear, "")
		return
	}
	t.plan.Phase = PhaseStopped
	t.prune()
	t.step(rulePrune, "")
}

// neverBegan reports whether the pod was rejected before anything of it was set up, so that nothing has to be torn down.
func (t *turn) neverBegan() bool {
	m := t.in.Memory
	return m.Stop != nil && m.Stop.Rejected && !m.SetUp && !t.plan.Orphaned && t.in.Observed.Empty() && len(t.in.InFlight) == 0
}

// cancelPulls cancels image pulls: the pod will not start.
func (t *turn) cancelPulls() {
	for _, a := range t.in.InFlight {
		if a.Op == pod.OpPullImage {
			t.cancel(a, WhyEndingCancel)
		}
	}
}

// graceClock starts the grace period of the pod, or continues it. A grace period may become shorter but never longer.
func (t *turn) graceClock() {
	m := t.in.Memory
	t.plan.StopBegan, t.plan.StopGrace = m.StopBegan, m.StopGrace
	if m.StopBegan.IsZero() {
		t.plan.StopBegan = t.in.Now
		t.plan.StopGrace = t.podGrace()
		return
	}
	if t.in.Pod != nil || t.in.LastGrace != nil || t.atOnce() {
		t.plan.StopGrace = min(m.StopGrace, t.podGrace())
	}
}

// leastPodGrace is the grace period of a pod that has to end at once: "Pods that are set to terminate immediately will still be
// given a small grace period before being force killed."
const leastPodGrace = time.Second

// podGrace returns the shortest of the grace periods that apply to the pod, but no less than leastPodGrace, unless the node kills the pod at
// once.
func (t *turn) podGrace() time.Duration {
	if t.atOnce() {
		return 0
	}
	return max(t.askedGrace(), leastPodGrace)
}

// atOnce reports whether the node ends the pod and kills its containers at once.
func (t *turn) atOnce() bool { return t.in.Memory.Stop != nil && t.in.Memory.Stop.AtOnce }

func (t *turn) askedGrace() time.Duration {
	in := t.in
	if in.Pod == nil {
		return t.orphanGrace()
	}
	grace := specGrace(&in.Pod.Spec)
	if s := in.Pod.DeletionGracePeriodSeconds; s != nil {
		grace = pod.Seconds(*s)
	}
	if in.Memory.Stop != nil && in.Memory.Stop.Grace != nil {
		grace = min(grace, *in.Memory.Stop.Grace)
	}
	return grace
}

// orphanGrace returns the grace period of a pod whose object is gone: the grace period of the deletion that removed the pod or, if that is
// not known, the longest grace period in the annotations of its containers.
func (t *turn) orphanGrace() time.Duration {
	if s := t.in.LastGrace; s != nil {
		return pod.Seconds(*s)
	}
	grace := -time.Nanosecond // negative: the grace period is unknown
	for i := range t.in.Observed.Containers {
		grace = max(grace, t.in.Observed.Containers[i].Grace)
	}
	if grace < 0 {
		return DefaultGrace
	}
	return grace
}

// left returns the rest of the pod's grace period. Even if the clock was set back, it returns no more than the whole grace period.
func (t *turn) left() time.Duration {
	return min(t.plan.StopBegan.Add(t.plan.StopGrace).Sub(t.in.Now), t.plan.StopGrace)
}

// graceShrank reports whether the grace period has become shorter since the last turn.
func (t *turn) graceShrank() bool {
	return t.plan.StopGrace < t.in.Memory.StopGrace
}

// stopAlive ends every container that is alive, the sidecars last and in reverse order ("the kubelet will delay sending the TERM signal
// to these sidecar containers until the last main container has fully terminated. The sidecar containers will be terminated in the
// reverse order they are defined in the Pod spec"). It reports whether any container is alive.
func (t *turn) stopAlive(cause pod.Cause, why pod.Why) bool {
	alive := false
	for i := range t.in.Observed.Containers {
		if c := &t.in.Observed.Containers[i]; t.alive(c) {
			alive = true
			t.killFor(cause, why, c, t.blocked(c))
		}
	}
	return alive
}

// blocked reports whether a container is a sidecar that must not be stopped before another container has ended.
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

// initRank returns the index of a container among the init containers, or noRank. (An init container that is not a sidecar has
// ended before any later container starts.)
func (t *turn) initRank(name string) int {
	if t.in.Pod == nil { // without the pod's object, the memory says in which list of the spec the container was
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
