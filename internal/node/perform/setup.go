package perform

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/objects"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// errClaims means that a pod needs devices that this agent cannot give it.
var errClaims = errors.New("this node agent does not support dynamic resource allocation, so the pod would run without the devices of its resource claims")

// setUp makes what a sandbox needs: the cgroup, directories and volumes. The agent also refreshes volumes with it, so it must
// be cheap if nothing has changed.
func (x *Performer) setUp(ctx context.Context, job pod.Job) pod.Outcome {
	if len(job.Pod.Spec.ResourceClaims) > 0 && !x.cfg.DevicesPrepared {
		x.event(job, v1.EventTypeWarning, "FailedPrepareDynamicResources", "failed to prepare dynamic resources: %v", errClaims)
		o := failed("FailedPrepareDynamicResources", errClaims)
		o.Lack = pod.LackDevices
		return o
	}
	if err := objects.TooMany(job.Pod); err != nil {
		if job.Observed.AnyAlive() { // an agent without these bounds, such as upstream's kubelet, has started it
			err = fmt.Errorf("%w. The pod was started by another node agent: it goes on running, but its volumes are not renewed, and no container of it starts again", err)
		}
		x.event(job, v1.EventTypeWarning, "FailedMount", "%v", err)
		return failed("FailedMount", err)
	}
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
