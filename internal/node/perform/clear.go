package perform

import (
	"context"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// tearDown undoes setUp: volumes first, then the cgroup, then the user IDs. Nothing of the pod runs any more.
func (x *Performer) tearDown(ctx context.Context, job pod.Job) pod.Outcome {
	if err := x.cfg.Volumes.TearDown(ctx, job.Ref); err != nil {
		return failed("FailedUnmount", err)
	}
	if err := x.cfg.Cgroups.RemovePod(ctx, job.Ref.UID); err != nil {
		return failed("FailedRemoveCgroup", err)
	}
	if err := x.cfg.IDs.Release(job.Ref.UID); err != nil { // last: nothing of the pod has files or processes any more
		return failed("FailedReleaseUserIDs", err)
	}
	return pod.Outcome{}
}

// forget removes the last traces: directories, logs, the watch on what the pod referred to.
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
