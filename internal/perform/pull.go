package perform

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/image"
	"github.com/wherry-node/wherry/internal/pod"
)

// pullImage makes sure that a container's image is present.
func (x *Performer) pullImage(ctx context.Context, job pod.Job) pod.Outcome {
	c, err := container(job.Pod, job.Action.Container)
	if err != nil {
		return failed(image.ReasonPull, err)
	}
	handler, err := x.handler(ctx, job.Pod)
	if err != nil {
		return failed(image.ReasonPull, err)
	}
	r, ierr := x.cfg.Images.Ensure(ctx, image.Request{
		Pod: job.Pod, Image: c.Image, Policy: c.ImagePullPolicy, RuntimeHandler: handler,
		Pulling: func() { x.event(job, v1.EventTypeNormal, "Pulling", "Pulling image %q", c.Image) },
	})
	if ierr != nil {
		return x.pullFailed(job, c, ierr)
	}
	for _, w := range r.Warnings {
		x.event(job, v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "%s", w)
	}
	if r.Pulled {
		x.event(job, v1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
			c.Image, r.Took.Truncate(time.Millisecond), r.Waited.Truncate(time.Millisecond), r.Image.GetSize())
	} else {
		x.event(job, v1.EventTypeNormal, "Pulled", "Container image %q already present on machine", c.Image)
	}
	return pod.Outcome{ID: r.Ref}
}

func (x *Performer) pullFailed(job pod.Job, c *v1.Container, ierr *image.Error) pod.Outcome {
	o := pod.Outcome{Err: ierr, Reason: ierr.Reason, Message: ierr.Message, Canceled: ierr.Canceled}
	if ierr.Canceled {
		return o
	}
	for _, w := range ierr.Warnings {
		x.event(job, v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "%s", w)
	}
	switch ierr.Reason {
	case image.ReasonNeverPull:
		x.event(job, v1.EventTypeWarning, "ErrImageNeverPull", "Container image %q is not present with pull policy of Never", c.Image)
	case image.ReasonInvalidName, image.ReasonInspect:
		x.event(job, v1.EventTypeWarning, "InspectFailed", "%s", ierr.Message)
	default:
		x.event(job, v1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", c.Image, ierr.Message)
	}
	x.event(job, v1.EventTypeWarning, "Failed", "Error: %s", ierr.Reason)
	return o
}
