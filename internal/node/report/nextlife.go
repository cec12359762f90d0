package report

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

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

// forget drops the state of a pod that no source has.
func (r *Report) forget(t *podworker.Turn, rep *reported) {
	r.mu.Lock()
	if rep.static != nil {
		old := rep.status
		if old == nil {
			old = &rep.static.Status
		}
		r.left.Keep(t.Ref.UID, &reported{status: afresh(old), fresh: true, static: rep.static, source: rep.source}, t.Now)
	}
	r.drop(t.Ref.UID)
	r.mu.Unlock()
	if r.cfg.Writer != nil {
		r.cfg.Writer.Forget(t.Ref.UID)
	}
}
