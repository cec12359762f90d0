package perform

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// startContainer creates a container in the pod's sandbox and starts it. If the action has the ID of a container, startContainer only
// starts that container, which was created by an earlier agent, or by an earlier CreateContainer whose answer was lost.
func (x *Performer) startContainer(ctx context.Context, job pod.Job) (o pod.Outcome) {
	defer func() {
		first := job.Action.Attempt == 0 && crispec.NeedsUserns(job.Pod)
		x.cfg.Meter.ContainerStarted(crispec.Kind(job.Pod, job.Action.Container), first, o.Reason)
	}()
	id := job.Action.ID
	if id == "" {
		if id, o = x.createContainer(ctx, job); o.Err != nil {
			x.event(job, v1.EventTypeWarning, "Failed", "Error: %s", o.Message)
			return o
		}
		job.Action.ID = id
		x.event(job, v1.EventTypeNormal, "Created", "Container created")
	}
	if err := x.cfg.CRI.StartContainer(ctx, id); err != nil {
		o = failed("RunContainerError", err)
		o.ID = id
		x.event(job, v1.EventTypeWarning, "Failed", "Error: %s", o.Message)
		return o
	}
	x.event(job, v1.EventTypeNormal, "Started", "Container started")
	if err := x.cfg.Logs.Link(job.Pod, job.Action.Container, id, job.Action.Attempt); err != nil {
		x.cfg.Log.Warn("link for log collectors not created", "pod", job.Ref, "container", job.Action.Container, "err", err)
	}
	return pod.Outcome{ID: id}
}

func (x *Performer) createContainer(ctx context.Context, job pod.Job) (string, pod.Outcome) {
	sandbox := job.Observed.NewestSandbox()
	if sandbox == nil {
		return "", failed("CreateContainerError", errors.New("the pod has no sandbox"))
	}
	cfg, handler, err := x.containerConfig(ctx, job, sandbox)
	if err != nil {
		reason := crispec.ReasonContainerConfig
		var ce *crispec.Error
		if errors.As(err, &ce) {
			reason = ce.Reason
		}
		return "", failed(reason, err)
	}
	sandboxCfg, _, err := x.sandboxConfig(job, sandbox.Attempt, handler)
	if err != nil {
		return "", failed("CreateContainerError", err)
	}
	// Not every runtime makes the directory of a log. It is missing for an ephemeral container, which came after the pod's set-up, and after
	// somebody cleaned up the logs.
	if err := x.cfg.Logs.Make(job.Pod); err != nil {
		return "", failed(crispec.ReasonContainerConfig, err)
	}
	id, err := x.cfg.CRI.CreateContainer(ctx, sandbox.ID, cfg, sandboxCfg)
	x.countImageVolumes(cfg.GetMounts(), err)
	if err != nil {
		return "", failed("CreateContainerError", err)
	}
	return id, pod.Outcome{}
}

// countImageVolumes counts the image volumes of a container that was created, or that could not be created because of one of
// them.
func (x *Performer) countImageVolumes(mounts []*runtimeapi.Mount, err error) {
	n := 0
	for _, m := range mounts {
		if m.GetImage() != nil {
			n++
		}
	}
	if failed := err != nil && strings.HasPrefix(cri.Message(err), imageVolumeFailed); n > 0 && (err == nil || failed) {
		x.cfg.Meter.ImageVolumes(n, failed)
	}
}

// imageVolumeFailed is the beginning of a runtime's error message if it could not mount an image as a volume (cri-api,
// pkg/errors).
const imageVolumeFailed = "ImageVolumeMountFailed"

// containerConfig builds the runtime's configuration for one attempt of a container. handler is the runtime handler of the pod.
func (x *Performer) containerConfig(ctx context.Context, job pod.Job, sandbox *pod.Sandbox) (cfg *runtimeapi.ContainerConfig, handler string, err error) {
	p, facts := job.Pod, x.cfg.Facts()
	c, err := container(p, job.Action.Container)
	if err != nil {
		return nil, "", err
	}
	ips := podIPs(job.Observed, facts.HostIPs, p)
	env, err := crispec.Env(x.envInput(ctx, p, c, ips, facts))
	if err != nil {
		return nil, "", err
	}
	img, err := x.cfg.CRI.ImageStatus(ctx, job.ImageRef)
	if err == nil && img == nil {
		err = errors.New("the image was removed after its pull")
	}
	if err != nil {
		return nil, "", &crispec.Error{Reason: "ImageInspectError", Message: fmt.Sprintf("failed to inspect image %q: %s", c.Image, cri.Message(err)), Err: err}
	}
	if handler, err = x.handler(ctx, p); err != nil {
		return nil, "", err
	}
	users, err := x.userns(p, handler, &facts)
	if err != nil {
		return nil, "", err
	}
	if !p.Spec.HostNetwork {
		ips = sandbox.IPs // the hosts file names all addresses
	}
	mounts, err := x.mounts(ctx, job, volume.MountInput{Pod: p, Container: c, Env: env, RecursiveReadOnly: facts.RecursiveReadOnly[handler]}, ips, handler)
	if err != nil {
		return nil, "", err
	}
	devices, err := x.cfg.Volumes.Devices(p, c)
	if err != nil {
		return nil, "", &crispec.Error{Reason: crispec.ReasonContainerConfig, Message: err.Error(), Err: err}
	}
	target, err := targetOf(p, c.Name, job.Observed)
	if err != nil {
		return nil, "", err
	}
	cfg, err = crispec.Container(crispec.ContainerInput{
		Pod: p, Container: c, Attempt: job.Action.Attempt, ImageRef: job.ImageRef, Image: img, Env: env,
		Mounts: mounts, Devices: devices, TargetID: target, RuntimeHandler: handler, Policy: facts.Spec, Userns: users,
	})
	return cfg, handler, err
}

// services returns the services of a namespace, and those of the namespace default, which has the service of the API server. It reports
// false while those of one of them are not known.
func (x *Performer) services(namespace string) ([]*v1.Service, bool) {
	services, synced := x.cfg.Objects.Services(namespace)
	if namespace != metav1.NamespaceDefault {
		more, known := x.cfg.Objects.Services(metav1.NamespaceDefault)
		services, synced = append(services[:len(services):len(services)], more...), synced && known
	}
	return services, synced
}

func (x *Performer) envInput(ctx context.Context, p *v1.Pod, c *v1.Container, ips []string, facts Facts) crispec.EnvInput {
	services, synced := x.services(p.Namespace)
	return crispec.EnvInput{
		Pod: p, Container: c, PodIPs: ips, HostIPs: facts.HostIPs, NodeName: facts.NodeName,
		NodeAllocatable: facts.Allocatable, Services: services, ServicesPending: !synced && !pod.IsStatic(p),
		EnvFile: func(volume, path string) ([]byte, error) { return x.cfg.Volumes.ReadFile(p, volume, path) },
		ConfigMap: func(_, name string) (*v1.ConfigMap, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return x.cfg.Objects.ConfigMap(ctx, p, name)
		},
		Secret: func(_, name string) (*v1.Secret, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return x.cfg.Objects.Secret(ctx, p, name)
		},
	}
}

// mounts returns the mounts of the container's volumes, of its hosts file and of its termination message.
func (x *Performer) mounts(ctx context.Context, job pod.Job, in volume.MountInput, ips []string, handler string) ([]*runtimeapi.Mount, error) {
	facts := x.cfg.Facts()
	if len(ips) > 0 {
		hosts, err := crispec.HostsFile(crispec.HostsInput{
			Pod: job.Pod, PodIPs: ips, ClusterDomain: facts.Spec.ClusterDomain, NodeHosts: facts.NodeHosts})
		if err != nil {
			return nil, err
		}
		in.Hosts = hosts
	}
	in.Image = func(vol *v1.Volume, sub string) (*runtimeapi.ImageSpec, error) {
		return x.imageVolume(ctx, job.Pod, vol, sub, handler)
	}
	mounts, err := x.cfg.Volumes.Mounts(ctx, in)
	if err != nil {
		return nil, &crispec.Error{Reason: crispec.ReasonContainerConfig, Message: err.Error(), Err: err}
	}
	return mounts, nil
}

// targetOf returns the ID of the container whose processes an ephemeral container targets. If that container does not run,
// targetOf fails, and the start is tried again later.
func targetOf(p *v1.Pod, name string, o *pod.Observed) (string, error) {
	for i := range p.Spec.EphemeralContainers {
		e := &p.Spec.EphemeralContainers[i]
		if e.Name != name || e.TargetContainerName == "" {
			continue
		}
		if r := o.Newest(e.TargetContainerName); r != nil && r.State == pod.StateRunning {
			return r.ID, nil
		}
		return "", &crispec.Error{Reason: crispec.ReasonContainerConfig, Message: "unable to find target container " + e.TargetContainerName}
	}
	return "", nil
}
