package report

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/mergepatch"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/edge/status"
	"github.com/wherry-node/wherry/internal/node/lastlife"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// StatusWriter writes the status of pods to the API. Calls never block.
type StatusWriter interface {
	Set(d status.Desired)
	Forget(uid types.UID)
}

// Recorder records events on pods. It must not block.
type Recorder interface {
	Event(p *v1.Pod, container, eventType, reason, message string)
}

// Config configures a Report.
type Config struct {
	// Writer is nil on a node without an API server.
	Writer   StatusWriter
	Recorder Recorder
	// Mirror returns the mirror pod of a static pod, or nil.
	Mirror      func(p *v1.Pod) *v1.Pod
	RuntimeName func() string
	HostIPs     func() []string
	// RecursiveReadOnly reports whether the pod's runtime handler supports recursive read-only mounts.
	RecursiveReadOnly func(p *v1.Pod) bool
	// Omit selects the parts of a status that disabled feature gates leave out.
	Omit podstatus.Omit
	// Started, when set, is called when a pod runs, with its status and the time since the agent first saw it.
	Started func(p *v1.Pod, status *v1.PodStatus, took time.Duration)
	// Resized, when set, is called when an accepted resize has been carried out, with the time since it was accepted, and after each failed
	// attempt. Calls may be concurrent and must not block.
	Resized func(took time.Duration, ok bool)
	// ContainerEnded, when set, is called once for each end of a container that a status shows, with the kind of the container
	// (crispec.Kind), its exit code and its reason. It must not block.
	ContainerEnded func(kind string, exitCode int32, reason string)
	// Clock is the node's clock, for the times in statuses.
	Clock nodeclock.Clock
	// Changed, when set, is called when Status returns another status of a pod than before. Calls may be concurrent and must not block.
	Changed func(uid types.UID)
	// Ended, when set, is called after each turn of a pushed pod that is being deleted and of which nothing runs. It must not
	// block.
	Ended func(uid types.UID)
}

// Report derives the status of a pod from each turn of its worker, and records the events that follow from a turn. Create it with New.
type Report struct {
	cfg Config

	mu   sync.Mutex
	left lastlife.Lives[*reported] // the last reports of static pods that may come back, from which the next life continues
	pods map[types.UID]*reported   // the last report of each pod; a pod about which there is nothing to remember has no entry
}

// reported is the last report about a pod.
type reported struct {
	status *v1.PodStatus     // the status that was derived last; nil: it equals that of the watched object
	fresh  bool              // status is the first status of the pod's next life: its manifest came back while the pod ended
	waits  map[string]string // the wait that the last event was recorded for, by container
	resize *decide.Resize    // the state of the resize at the last event about it; nil: there was none
	passed passed            // what the Writer was last given, with a status
	static *v1.Pod           // the static pod, kept after its manifest is gone, because its mirror shows how it ends
	source pod.Source        // the source of static
}

// passed is what Writer.Set was called with, beside the status.
type passed struct {
	pod           *v1.Pod
	queued, final bool
}

var _ podworker.Reporter = (*Report)(nil)

// New returns a Report.
func New(cfg Config) *Report {
	return &Report{cfg: cfg, pods: map[types.UID]*reported{}}
}

// of returns the last report about the pod of a turn, from this life or the one before. It is called with the lock held.
func (r *Report) of(t *podworker.Turn) *reported {
	if rep := r.pods[t.Ref.UID]; rep != nil {
		return rep
	}
	if t.Pod != nil {
		if left, ok := r.left.Take(t.Ref.UID, t.Now); ok {
			r.pods[t.Ref.UID] = left
			return left
		}
	}
	return &reported{}
}

// Turn derives the pod's status from a turn and passes it to the Writer.
func (r *Report) Turn(t *podworker.Turn) {
	r.mu.Lock()
	rep := r.of(t)
	old, fresh := rep.status, rep.fresh
	r.mu.Unlock()
	if t = rep.whole(t); t.Pod == nil {
		r.forget(t, rep)
		return
	}
	if rep.fresh && t.Memory.Orphaned {
		return // the previous life has not ended yet
	}
	if t.Plan.Phase >= decide.PhaseClearing { // the manifest is back, so another life follows
		if old == nil {
			old = &t.Pod.Status
		}
		r.mu.Lock()
		r.pods[t.Ref.UID] = &reported{status: afresh(old), fresh: true, static: rep.static, source: rep.source}
		r.mu.Unlock()
		if r.cfg.Changed != nil {
			r.cfg.Changed(t.Ref.UID)
		}
		return
	}
	st := podstatus.Derive(podstatus.Input{
		Pod: t.Pod, Old: old, Observed: t.Observed, Memory: t.Memory, Plan: t.Plan, Probed: t.Probed,
		RuntimeName: r.cfg.RuntimeName(), HostIPs: r.cfg.HostIPs(), RecursiveReadOnly: r.cfg.RecursiveReadOnly(t.Pod), Omit: r.cfg.Omit, Now: t.Now,
		Clock: r.cfg.Clock,
	})
	same := old != nil && mergepatch.Equal(old, &st)
	r.mu.Lock()
	rep.status, rep.fresh, r.pods[t.Ref.UID] = &st, false, rep
	if mergepatch.Equal(&st, &t.Pod.Status) {
		rep.status = nil
	}
	r.mu.Unlock()
	r.events(t, rep)
	if r.cfg.Changed != nil && (fresh || old == nil && rep.status != nil || old != nil && !same) {
		r.cfg.Changed(t.Ref.UID)
	}
	if r.cfg.ContainerEnded != nil {
		before := &t.Pod.Status
		if old != nil {
			before = old
		}
		countEnds(before.ContainerStatuses, st.ContainerStatuses, crispec.KindContainer, r.cfg.ContainerEnded)
		countEnds(before.InitContainerStatuses, st.InitContainerStatuses, crispec.KindInit, r.cfg.ContainerEnded)
		countEnds(before.EphemeralContainerStatuses, st.EphemeralContainerStatuses, crispec.KindEphemeral, r.cfg.ContainerEnded)
	}
	r.resizeEvents(t, rep)
	r.mu.Lock()
	if rep.status == nil && len(rep.waits) == 0 && rep.resize == nil && rep.static == nil {
		r.drop(t.Ref.UID)
	}
	r.mu.Unlock()
	if r.cfg.Started != nil && st.Phase == v1.PodRunning && (old == nil && t.Pod.Status.Phase == v1.PodPending || old != nil && old.Phase == v1.PodPending) {
		r.cfg.Started(t.Pod, &st, t.Now.Sub(t.Memory.StartTime))
	}
	if r.cfg.Ended != nil && t.Source == pod.SourcePush && t.Pod.DeletionTimestamp != nil && t.Plan.Phase >= decide.PhaseStopped {
		r.cfg.Ended(t.Ref.UID)
	}
	if r.cfg.Writer == nil {
		return
	}
	target := t.Pod
	if t.Source != pod.SourceAPI {
		target = r.cfg.Mirror(t.Pod)
		if target == nil || target.Status.StartTime != nil && t.Pod.Status.StartTime == nil {
			return // there is no mirror, or it appeared during this turn, which did not use its status; then another turn follows
		}
	}
	to := passed{target, t.Queued, t.Plan.Phase >= decide.PhaseStopped}
	if same && to == rep.passed {
		return // the Writer has all of it, and half of the turns change none of it
	}
	rep.passed = to
	r.cfg.Writer.Set(status.Desired{Pod: target, Status: st, Queued: to.queued, Final: to.final})
}

// drop removes the entry of a pod. An emptied map keeps its memory, so a new one replaces it. It is called with the lock held.
func (r *Report) drop(uid types.UID) {
	if delete(r.pods, uid); len(r.pods) == 0 {
		r.pods = map[types.UID]*reported{}
	}
}

// Status returns the newest status of a pod: the last one derived, or that of the object if both are equal.
func (r *Report) Status(p *v1.Pod) v1.PodStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rep := r.pods[p.UID]; rep != nil && rep.status != nil {
		return *rep.status
	}
	return p.Status
}
