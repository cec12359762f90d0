package syncloop

import (
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/edge/status"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// StatusWriter writes the status of pods to the API. Calls never block.
type StatusWriter interface {
	Set(d status.Desired)
	Forget(uid types.UID)
}

// ReportConfig configures a Report.
type ReportConfig struct {
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
	// Resizes counts how long resizes take; nil: they are not counted.
	Resizes ResizeMeter
	// ContainerEnded, when set, is called once for each end of a container that a status shows, with the kind of the container
	// (crispec.Kind), its exit code and its reason. It must not block.
	ContainerEnded func(kind string, exitCode int32, reason string)
	// Ended, when set, is called after each turn of a pushed pod that is being deleted and of which nothing runs. It must not
	// block.
	Ended func(uid types.UID)
}

// Report derives the status of a pod from each turn of its worker, and records an event when a container starts to wait.
type Report struct {
	cfg ReportConfig

	mu   sync.Mutex
	left lastLives[*reported]    // the last reports of static pods that may come back, from which the next life continues
	pods map[types.UID]*reported // the last report of each pod; a pod about which there is nothing to remember has no entry
}

// reported is the last report about a pod.
type reported struct {
	status *v1.PodStatus     // the status that was derived last; nil: it equals that of the watched object
	fresh  bool              // status is the first status of the pod's next life: its manifest came back while the pod ended
	waits  map[string]string // the wait that the last event was recorded for, by container
	resize *decide.Resize    // the state of the resize at the last event about it; nil: there was none
	static *v1.Pod           // the static pod, kept after its manifest is gone, because its mirror shows how it ends
	source pod.Source        // the source of static
}

// NewReport returns a Report.
func NewReport(cfg ReportConfig) *Report {
	return &Report{cfg: cfg, pods: map[types.UID]*reported{}}
}

// of returns the last report about the pod of a turn, from this life or the one before. It is called with the lock held.
func (r *Report) of(t *podworker.Turn) *reported {
	if rep := r.pods[t.Ref.UID]; rep != nil {
		return rep
	}
	if t.Pod != nil {
		if left, ok := r.left.take(t.Ref.UID, t.Now); ok {
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
	old := rep.status
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
		return
	}
	st := podstatus.Derive(podstatus.Input{
		Pod: t.Pod, Old: old, Observed: t.Observed, Memory: t.Memory, Plan: t.Plan, Probed: t.Probed,
		RuntimeName: r.cfg.RuntimeName(), HostIPs: r.cfg.HostIPs(), RecursiveReadOnly: r.cfg.RecursiveReadOnly(t.Pod), Omit: r.cfg.Omit, Now: t.Now,
	})
	r.mu.Lock()
	rep.status, rep.fresh, r.pods[t.Ref.UID] = &st, false, rep
	if equality.Semantic.DeepEqual(&st, &t.Pod.Status) {
		rep.status = nil
	}
	r.mu.Unlock()
	r.events(t, rep)
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
	r.cfg.Writer.Set(status.Desired{Pod: target, Status: st, Queued: t.Queued, Final: t.Plan.Phase >= decide.PhaseStopped})
}

// afresh returns the first status of a static pod's next life. Restart counts continue, because the mirror may be the same. The
// restart count of each container that was created in the previous life grows by one.
func afresh(s *v1.PodStatus) *v1.PodStatus {
	list := func(in []v1.ContainerStatus) (out []v1.ContainerStatus) {
		for i := range in {
			restarts, last := in[i].RestartCount, in[i].LastTerminationState
			if in[i].ContainerID != "" {
				restarts++
				last = v1.ContainerState{Terminated: in[i].State.Terminated}
			}
			out = append(out, v1.ContainerStatus{Name: in[i].Name, Image: in[i].Image, RestartCount: restarts, LastTerminationState: *last.DeepCopy(),
				State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: podstatus.ReasonContainerCreating}}})
		}
		return out
	}
	return &v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: list(s.InitContainerStatuses), ContainerStatuses: list(s.ContainerStatuses)}
}

// whole adds the last known object of a static pod to a turn. After the manifest is gone, turns have no object, but the mirror is
// updated until nothing of the pod runs.
func (rep *reported) whole(t *podworker.Turn) *podworker.Turn {
	switch {
	case t.Pod != nil && t.Source != pod.SourceAPI:
		rep.static, rep.source = t.Pod, t.Source
	case t.Pod == nil && rep.static != nil && t.Plan.Phase < decide.PhaseClearing:
		ended := *t
		ended.Pod, ended.Desired, ended.Source = rep.static, rep.static, rep.source
		return &ended
	}
	return t
}

// countEnds calls report for each end of a container that the statuses in after show and those in before do not. A container that
// restarts at once shows its end only as its last state.
func countEnds(before, after []v1.ContainerStatus, kind string, report func(kind string, exitCode int32, reason string)) {
	for i := range after {
		was := slices.IndexFunc(before, func(s v1.ContainerStatus) bool { return s.Name == after[i].Name })
		for _, end := range []*v1.ContainerStateTerminated{after[i].LastTerminationState.Terminated, after[i].State.Terminated} {
			if end == nil || end.ContainerID == "" || was >= 0 && has(&before[was], end.ContainerID) {
				continue
			}
			report(kind, end.ExitCode, end.Reason)
		}
	}
}

// has reports whether a status already shows the end of the container with the ID.
func has(s *v1.ContainerStatus, id string) bool {
	for _, end := range []*v1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
		if end != nil && end.ContainerID == id {
			return true
		}
	}
	return false
}

// forget drops the state of a pod that no source has.
func (r *Report) forget(t *podworker.Turn, rep *reported) {
	r.mu.Lock()
	if rep.static != nil {
		old := rep.status
		if old == nil {
			old = &rep.static.Status
		}
		r.left.keep(t.Ref.UID, &reported{status: afresh(old), fresh: true, static: rep.static, source: rep.source}, t.Now)
	}
	r.drop(t.Ref.UID)
	r.mu.Unlock()
	if r.cfg.Writer != nil {
		r.cfg.Writer.Forget(t.Ref.UID)
	}
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

// events records an event when a wait begins: the back-off after a crash or a failed pull, or a pod network that is not ready.
func (r *Report) events(t *podworker.Turn, rep *reported) {
	for i := range t.Memory.Containers {
		c := &t.Memory.Containers[i]
		key, eventType, reason, message := waitOf(t, c)
		if rep.waits[c.Name] == key {
			continue
		}
		if rep.waits == nil {
			rep.waits = map[string]string{}
		}
		rep.waits[c.Name] = key
		if key == "" {
			delete(rep.waits, c.Name)
			continue
		}
		r.cfg.Recorder.Event(t.Pod, c.Name, eventType, reason, message)
		if eventType == v1.EventTypeNormal { // the container waits for the back-off of its image pull
			r.cfg.Recorder.Event(t.Pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+podstatus.ReasonImagePullBackOff)
		}
	}
	if s := t.Plan.Stop; s != nil && s.Reason == decide.ReasonDeadlineExceeded { // only one turn's plan has this reason, so there is one event
		r.cfg.Recorder.Event(t.Pod, "", v1.EventTypeNormal, s.Reason, s.Message)
	}
	const network = "\x00network"
	waits := t.Plan.Phase == decide.PhaseActive && !t.Node.NetworkReady && !t.Pod.Spec.HostNetwork && len(t.Observed.Sandboxes) == 0 && t.Node.NetworkMessage != ""
	if waits && rep.waits[network] == "" {
		if rep.waits == nil {
			rep.waits = map[string]string{}
		}
		rep.waits[network] = "recorded"
		r.cfg.Recorder.Event(t.Pod, "", v1.EventTypeWarning, "NetworkNotReady", "network is not ready: "+t.Node.NetworkMessage)
	} else if !waits {
		delete(rep.waits, network)
	}
}

// waitOf returns the event about the reason for which a container waits. key changes when another wait begins; "": the container
// does not wait.
func waitOf(t *podworker.Turn, c *decide.ContainerMemory) (key, eventType, reason, message string) {
	if t.Plan.Phase != decide.PhaseActive {
		return "", "", "", ""
	}
	inst := t.Observed.Newest(c.Name)
	alive := inst != nil && inst.Alive()
	switch {
	case !alive && c.PullUntil.After(t.Now) && decide.PullBacksOff(c.WaitingReason): // the failed pull has its own event
		return "pull " + c.PullUntil.String(), v1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.PullFailed)
	case !alive && c.CrashUntil.After(t.Now):
		return "crash " + c.CrashedID, v1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, t.Ref.Name, t.Ref.Namespace, t.Ref.UID)
	}
	return "", "", "", ""
}
