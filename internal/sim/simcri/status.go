package simcri

import (
	"context"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandboxStatus describes one sandbox. With verbose it adds that the sandbox is simulated.
func (r *Runtime) PodSandboxStatus(ctx context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	f, err := r.enter(ctx, "PodSandboxStatus", r.ofSandbox(req.PodSandboxId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	s := find(r.sandboxes, req.PodSandboxId)
	if s == nil {
		r.mu.Unlock()
		return nil, errNotFound("sandbox", req.PodSandboxId)
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(s)}
	if req.Verbose {
		resp.Info = map[string]string{"info": `{"simulated":true}`}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

func sandboxStatus(s *sandbox) *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.meta, State: s.state(), CreatedAt: s.created, Labels: s.labels.asMap(),
		Annotations: s.annotations.asMap(), RuntimeHandler: s.handler,
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.namespaces}},
		Network: &runtimeapi.PodSandboxNetworkStatus{},
	}
	for i, ip := range s.ips {
		if i == 0 {
			st.Network.Ip = ip.String()
			continue
		}
		st.Network.AdditionalIps = append(st.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip.String()})
	}
	return st
}

// ListPodSandbox returns the sandboxes that match a filter, in any order.
func (r *Runtime) ListPodSandbox(ctx context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f, err := r.enter(ctx, "ListPodSandbox", nil)
	if err != nil {
		return nil, err
	}
	filter := req.GetFilter()
	r.mu.Lock()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if (filter.GetId() != "" && !strings.HasPrefix(s.id, filter.Id)) || !s.labels.match(filter.GetLabelSelector()) ||
			(filter.GetState() != nil && filter.State.State != s.state()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.meta, State: s.state(), CreatedAt: s.created, Labels: s.labels.asMap(),
			Annotations: s.annotations.asMap(), RuntimeHandler: s.handler,
		})
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// ContainerStatus describes one container.
func (r *Runtime) ContainerStatus(ctx context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f, err := r.enter(ctx, "ContainerStatus", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := find(r.containers, req.ContainerId)
	if c == nil {
		r.mu.Unlock()
		return nil, errNotFound("container", req.ContainerId)
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: containerStatus(c)}
	if req.Verbose {
		resp.Info = map[string]string{"info": `{"sandboxID":"` + c.sb.id + `","simulated":true}`}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

func containerStatus(c *container) *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.meta, State: c.state, CreatedAt: c.created, Image: c.spec, ImageId: c.image.id,
		ImageRef: c.image.ref(), Labels: c.labels.asMap(), Annotations: c.annotations.asMap(), Mounts: c.mounts, LogPath: c.logPath,
		StopSignal: c.stopSignal,
	}
	if name := c.image.tag(); name != "" {
		st.Image = &runtimeapi.ImageSpec{Image: name}
	}
	if st.StopSignal == runtimeapi.Signal_RUNTIME_DEFAULT {
		st.StopSignal = runtimeapi.Signal_SIGTERM
	}
	if c.resources != nil {
		st.Resources = &runtimeapi.ContainerResources{Linux: c.resources}
	}
	user := c.user
	if user == nil {
		user = &runtimeapi.LinuxContainerUser{}
	}
	st.User = &runtimeapi.ContainerUser{Linux: user}
	switch c.state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		st.StartedAt = c.started
	case runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		st.StartedAt, st.FinishedAt = c.started, c.finished
		st.ExitCode, st.Reason, st.Message = c.exitCode, c.reason, c.message
	case runtimeapi.ContainerState_CONTAINER_CREATED:
	}
	return st
}

// ListContainers returns the containers that match a filter, in any order.
func (r *Runtime) ListContainers(ctx context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f, err := r.enter(ctx, "ListContainers", nil)
	if err != nil {
		return nil, err
	}
	filter := req.GetFilter()
	resp := &runtimeapi.ListContainersResponse{}
	add := func(c *container) {
		if (filter.GetId() != "" && !strings.HasPrefix(c.id, filter.Id)) || !c.labels.match(filter.GetLabelSelector()) ||
			(filter.GetState() != nil && filter.State.State != c.state) {
			return
		}
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sb.id, Metadata: c.meta, Image: c.spec, ImageRef: c.image.id, ImageId: c.image.id,
			State: c.state, CreatedAt: c.created, Labels: c.labels.asMap(), Annotations: c.annotations.asMap(),
		})
	}
	r.mu.Lock()
	if id := filter.GetPodSandboxId(); id != "" {
		if s := find(r.sandboxes, id); s != nil {
			for _, c := range s.containers {
				add(c)
			}
		}
	} else {
		for _, c := range r.containers {
			add(c)
		}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}
