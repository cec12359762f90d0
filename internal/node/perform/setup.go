package perform

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// setUp makes what a sandbox needs: the cgroup, directories and volumes. The agent also refreshes volumes with it, so it must
// be cheap if nothing has changed.
func (x *Performer) setUp(ctx context.Context, job pod.Job) pod.Outcome {
	facts := x.cfg.Facts()
	if _, err := x.cfg.Cgroups.EnsurePod(ctx, job.Pod, job.Action.Size); err != nil {
		x.event(job, v1.EventTypeWarning, "FailedCreatePodContainer", "unable to ensure pod container exists: %v", err)
		return failed("FailedCreatePodContainer", err)
	}
	if err := x.cfg.Logs.Make(job.Pod); err != nil {
		x.event(job, v1.EventTypeWarning, "Failed", "error making pod log directories: %v", err)
		return failed("FailedMakePodDataDirectories", err)
	}
	err := x.cfg.Volumes.SetUp(ctx, volume.Pod{
		Pod: job.Pod, PodIPs: podIPs(job.Observed, facts.HostIPs, job.Pod), HostIPs: facts.HostIPs,
		NodeAllocatable: facts.Allocatable,
	})
	if err == nil {
		return pod.Outcome{}
	}
	o := failed("FailedMount", err)
	var ve *volume.Error
	if errors.As(err, &ve) {
		o.Lack = ve.Lack
		if ctx.Err() == nil {
			x.event(job, v1.EventTypeWarning, "FailedMount", "MountVolume.SetUp failed for volume %q : %s", ve.Volume, ve.Message)
		}
	}
	return o
}
