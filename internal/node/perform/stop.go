package perform

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

func (x *Performer) stopContainer(ctx context.Context, job pod.Job) pod.Outcome {
	if !x.announced.drop(job.Action.ID) {
		x.recordKilling(job)
	}
	if err := x.cfg.CRI.StopContainer(ctx, job.Action.ID, job.Action.Grace); err != nil {
		x.recordNotKilled(job, "KillContainer", job.Action.Container, "KillContainerError", err)
		return failed("KillContainerError", err)
	}
	return pod.Outcome{ID: job.Action.ID}
}

// recordNotKilled records an event about the pod: a container or sandbox could not be stopped. The text is that of upstream's kubelet.
func (x *Performer) recordNotKilled(job pod.Job, what, target, reason string, err error) {
	text := byName(job.Action, cri.StatusText(err))
	job.Action.Container = ""
	x.event(job, v1.EventTypeWarning, "FailedKillPod", "error killing pod: failed to %q for %q with %s: %q", what, target, reason, text)
}

// recordKilling records that the agent ends a container: before its preStop hook if there is one, otherwise before its stop.
func (x *Performer) recordKilling(job pod.Job) {
	x.event(job, v1.EventTypeNormal, "Killing", "%s", decide.Killing(job.Pod, job.Action.Container, job.Action.Cause))
}

// announced holds the IDs of the containers whose Killing event was recorded before their preStop hook, so that stopContainer does not
// record the event a second time.
type announced struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (s *announced) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[id] = true
}

// drop forgets a container and reports whether its Killing event was recorded.
func (s *announced) drop(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.ids[id]
	if delete(s.ids, id); len(s.ids) == 0 {
		s.ids = nil
	}
	return had
}

func (x *Performer) removeContainer(ctx context.Context, job pod.Job) pod.Outcome {
	x.announced.drop(job.Action.ID) // the entry is left over if the container ended during its preStop hook and was not stopped
	c := job.Observed.ByID(job.Action.ID)
	if err := x.cfg.CRI.RemoveContainer(ctx, job.Action.ID); err != nil {
		return failed("RemoveContainerError", err)
	}
	if job.Pod != nil && c != nil && !sharesLog(c, job.Observed) { // of a pod that no source has, forget removes all logs
		if err := x.cfg.Logs.Remove(job.Ref, c.Name, c.Attempt); err != nil {
			return failed("RemoveContainerError", err)
		}
	}
	return pod.Outcome{ID: job.Action.ID}
}

// sharesLog reports whether another container has the same name and attempt, and so the same log. A runtime should never have two such
// containers.
func sharesLog(c *pod.Container, o *pod.Observed) bool {
	return slices.ContainsFunc(o.Containers, func(other pod.Container) bool {
		return other.ID != c.ID && other.Name == c.Name && other.Attempt == c.Attempt
	})
}
