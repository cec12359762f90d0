package perform

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

func (x *Performer) stopContainer(ctx context.Context, job pod.Job) pod.Outcome {
	x.event(job, v1.EventTypeNormal, "Killing", "%s", killing(job.Action))
	if err := x.cfg.CRI.StopContainer(ctx, job.Action.ID, job.Action.Grace); err != nil {
		o := failed("KillContainerError", err)
		x.event(job, v1.EventTypeWarning, "FailedKillPod", "error killing pod: failed to stop container %s: %s", job.Action.Container, o.Message)
		return o
	}
	return pod.Outcome{ID: job.Action.ID}
}

// killing is the event text that people look for; the reason behind it is in the timeline.
func killing(a pod.Action) string {
	switch a.Why {
	case "":
		return "Stopping container " + a.Container
	default:
		return "Stopping container " + a.Container + ": " + string(a.Why)
	}
}

func (x *Performer) removeContainer(ctx context.Context, job pod.Job) pod.Outcome {
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
