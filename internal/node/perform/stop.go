package perform

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

func (x *Performer) stopContainer(ctx context.Context, job pod.Job) pod.Outcome {
	if !x.said.drop(job.Action.ID) {
		x.sayKilling(job)
	}
	if err := x.cfg.CRI.StopContainer(ctx, job.Action.ID, job.Action.Grace); err != nil {
		x.sayNotKilled(job, "KillContainer", job.Action.Container, "KillContainerError", err)
		return failed("KillContainerError", err)
	}
	return pod.Outcome{ID: job.Action.ID}
}

// sayNotKilled records, of the pod and in upstream's words, that a container or sandbox could not be stopped.
func (x *Performer) sayNotKilled(job pod.Job, what, target, reason string, err error) {
	text := byName(job.Action, cri.Words(err))
	job.Action.Container = ""
	x.event(job, v1.EventTypeWarning, "FailedKillPod", "error killing pod: failed to %q for %q with %s: %q", what, target, reason, text)
}

// sayKilling records that a container is being ended: before its preStop hook, if one runs, else before its stop.
func (x *Performer) sayKilling(job pod.Job) {
	x.event(job, v1.EventTypeNormal, "Killing", "%s", decide.Killing(job.Pod, job.Action.Container, job.Action.Cause))
}

// said are the containers whose end was said before their preStop hook. Their stop does not say it again.
type said struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (s *said) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[id] = true
}

// drop forgets a container and reports whether its end was said.
func (s *said) drop(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.ids[id]
	if delete(s.ids, id); len(s.ids) == 0 {
		s.ids = nil
	}
	return had
}

func (x *Performer) removeContainer(ctx context.Context, job pod.Job) pod.Outcome {
	x.said.drop(job.Action.ID) // it ended during its hook
	c := job.Observed.ByID(job.Action.ID)
	if err := x.cfg.CRI.RemoveContainer(ctx, job.Action.ID); err != nil {
		return failed("RemoveContainerError", err)
	}
	if c != nil {
		if err := x.cfg.Logs.Remove(job.Ref, c.Name, c.Attempt); err != nil {
			return failed("RemoveContainerError", err)
		}
	}
	return pod.Outcome{ID: job.Action.ID}
}
