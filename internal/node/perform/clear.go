package perform

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// tearDown undoes setUp when no container of the pod runs any more: first the volumes, then the cgroup, then the user IDs.
func (x *Performer) tearDown(ctx context.Context, job pod.Job) pod.Outcome {
	if err := x.cfg.Volumes.TearDown(ctx, job.Ref); err != nil {
		if ctx.Err() == nil {
			x.event(job, v1.EventTypeWarning, "FailedUnMount", "UnmountVolume.TearDown failed: %v", err)
		}
		return failed("FailedUnmount", err)
	}
	if err := x.cfg.Cgroups.RemovePod(ctx, job.Ref.UID); err != nil {
		return failed("FailedRemoveCgroup", err)
	}
	if err := x.cfg.IDs.Release(job.Ref.UID); err != nil { // last, because until now files and processes of the pod used the IDs
		return failed("FailedReleaseUserIDs", err)
	}
	return pod.Outcome{}
}

// forget removes the pod's directories and logs, and ends the watch on the objects that it refers to.
func (x *Performer) forget(ctx context.Context, job pod.Job) pod.Outcome {
	if err := x.cfg.Logs.RemovePod(job.Ref); err != nil {
		return failed("FailedRemovePod", err)
	}
	if err := x.cfg.Volumes.Remove(ctx, job.Ref); err != nil {
		return failed("FailedRemovePod", err)
	}
	if err := x.cfg.IDs.Release(job.Ref.UID); err != nil {
		return failed("FailedRemovePod", err)
	}
	x.cfg.Objects.Forget(job.Ref.UID)
	return pod.Outcome{}
}
