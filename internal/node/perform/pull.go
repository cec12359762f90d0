package perform

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/image"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// pullImage pulls the image of a container, and the images that the container mounts as volumes, as far as their pull policies require.
// The outcome has the reference of the container's own image.
func (x *Performer) pullImage(ctx context.Context, job pod.Job) pod.Outcome {
	c, err := container(job.Pod, job.Action.Container)
	if err != nil {
		return failed(image.ReasonPull, err)
	}
	if err := objects.TooManyFor(job.Pod, c.Name); err != nil { // the pull secrets would be read too
		if crispec.Kind(job.Pod, c.Name) == crispec.KindEphemeral { // of other containers, setUp records the event
			x.event(job, v1.EventTypeWarning, "Failed", "Error: %v", err)
		}
		return failed(crispec.ReasonContainerConfig, err)
	}
	handler, err := x.handler(ctx, job.Pod)
	if err != nil {
		return failed(image.ReasonPull, err)
	}
	out := x.ensure(ctx, job, image.Request{Image: c.Image, Policy: c.ImagePullPolicy, RuntimeHandler: handler}, c.Name)
	if out.Err != nil {
		return out
	}
	for _, vol := range x.imageVolumes(job.Pod, c) {
		src := vol.Image
		o := x.ensure(ctx, job, image.Request{Image: src.Reference, Policy: src.PullPolicy, RuntimeHandler: handler}, "")
		if o.Err != nil {
			o.Message = fmt.Sprintf("volume %q: %s", vol.Name, o.Message)
			return o
		}
		out.Message += "; " + o.Message
	}
	return out
}

// ensure makes sure that one image is present, and pulls it if necessary. container is the name of the container that runs the image. It
// is "" for the image of a volume, whose events are about the pod as a whole.
func (x *Performer) ensure(ctx context.Context, job pod.Job, r image.Request, container string) pod.Outcome {
	event := func(eventType, reason, format string, args ...any) {
		x.cfg.Recorder.Event(job.Pod, container, eventType, reason, fmt.Sprintf(format, args...))
	}
	r.Pod = job.Pod
	r.Pulling = func() { event(v1.EventTypeNormal, "Pulling", "Pulling image %q", r.Image) }
	r.Stalled = func(text string) {
		event(v1.EventTypeWarning, "ImagePullStalled", "Still pulling image %q: %s", r.Image, text)
	}
	res, ierr := x.cfg.Images.Ensure(ctx, r)
	if ierr != nil {
		return x.pullFailed(job, r.Image, ierr, event)
	}
	for _, w := range res.Warnings {
		event(v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "%s", w)
	}
	if res.Pulled {
		x.cfg.Meter.ImagePulled(res.Image.GetSize(), res.Waited)
		event(v1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
			r.Image, res.Took.Truncate(time.Millisecond), res.Waited.Truncate(time.Millisecond), res.Image.GetSize())
	} else if res.Verified {
		event(v1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", r.Image)
	} else {
		event(v1.EventTypeNormal, "Pulled", "Container image %q already present on machine", r.Image)
	}
	return pod.Outcome{ID: res.Ref, Message: brought(r.Image, &res)}
}

// brought returns a text for the timeline: how much a pull transferred, how long it waited, and how long it took.
func brought(name string, res *image.Result) string {
	if !res.Pulled {
		return fmt.Sprintf("%s is present, nothing was pulled", name)
	}
	return fmt.Sprintf("pulled %s: %d bytes in %v, after a wait of %v", name, res.Image.GetSize(),
		res.Took.Truncate(time.Millisecond), (res.Waited - res.Took).Truncate(time.Millisecond))
}

func (x *Performer) pullFailed(job pod.Job, name string, ierr *image.Error, event func(eventType, reason, format string, args ...any)) pod.Outcome {
	o := pod.Outcome{ID: name, Err: ierr, Reason: ierr.Reason, Message: ierr.Message, Canceled: ierr.Canceled}
	if ierr.Canceled {
		return o
	}
	for _, w := range ierr.Warnings {
		event(v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "%s", w)
	}
	switch ierr.Reason {
	case image.ReasonNeverPull:
		event(v1.EventTypeWarning, "ErrImageNeverPull", "Container image %q is not present with pull policy of Never", name)
	case image.ReasonInvalidName, image.ReasonInspect:
		event(v1.EventTypeWarning, "InspectFailed", "%s", ierr.Message)
	default:
		event(v1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", name, image.PullMessage(ierr.Err))
	}
	x.event(job, v1.EventTypeWarning, "Failed", "Error: %s", ierr.Reason)
	return o
}

// imageVolumes returns the image volumes that a container mounts. It returns none if the runtime cannot mount images: then
// nothing is pulled, and imageVolume returns the error.
func (x *Performer) imageVolumes(p *v1.Pod, c *v1.Container) []*v1.Volume {
	var out []*v1.Volume
	for i := range p.Spec.Volumes {
		vol := &p.Spec.Volumes[i]
		if vol.Image == nil || vol.Image.Reference == "" {
			continue
		}
		for j := range c.VolumeMounts {
			if c.VolumeMounts[j].Name == vol.Name {
				out = append(out, vol)
				break
			}
		}
	}
	if len(out) > 0 {
		f := x.cfg.Facts()
		if can, _ := crispec.ImageVolumes(f.RuntimeName, f.RuntimeVersion); !can {
			return nil
		}
	}
	return out
}

// imageVolume returns the image that the runtime mounts for a volume.
func (x *Performer) imageVolume(ctx context.Context, p *v1.Pod, vol *v1.Volume, sub, handler string) (*runtimeapi.ImageSpec, error) {
	f := x.cfg.Facts()
	switch can, canSub := crispec.ImageVolumes(f.RuntimeName, f.RuntimeVersion); {
	case !can:
		return nil, fmt.Errorf("the container runtime, %s %s, cannot mount images: use containerd 2.1 or CRI-O 1.31, or newer", f.RuntimeName, f.RuntimeVersion)
	case sub != "" && !canSub: // this runtime ignores subPath: it would mount the whole image and report no error
		return nil, fmt.Errorf("the container runtime, %s %s, cannot mount a subPath of an image: use containerd 2.2 or CRI-O 1.33, or newer", f.RuntimeName, f.RuntimeVersion)
	}
	if vol.Image.Reference == "" { // the API allows an empty reference, for tools that fill it in later
		return nil, errors.New("image.reference is empty: name the image to mount")
	}
	name, err := image.WithTag(vol.Image.Reference)
	if err != nil {
		return nil, err
	}
	img, err := x.cfg.CRI.ImageStatus(ctx, name)
	if err != nil {
		return nil, errors.New(cri.Message(err))
	}
	if img == nil {
		return nil, errors.New("the image was removed after its pull")
	}
	return &runtimeapi.ImageSpec{Image: img.Id, UserSpecifiedImage: vol.Image.Reference, RuntimeHandler: handler, Annotations: crispec.PodAnnotations(p)}, nil
}
