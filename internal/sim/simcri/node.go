package simcri

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the name and version of the runtime.
func (r *Runtime) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	f, err := r.enter(ctx, "Version", nil)
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: r.cfg.Name, RuntimeVersion: r.cfg.Version, RuntimeApiVersion: "v1",
	})
}

// Status reports whether the runtime and the network are ready.
func (r *Runtime) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	f, err := r.enter(ctx, "Status", nil)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	resp := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			r.conditions[runtimeapi.RuntimeReady], r.conditions[runtimeapi.NetworkReady],
		}},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: !r.cfg.NoGroupsPolicy},
	}
	r.mu.Unlock()
	for _, h := range append([]string{""}, r.cfg.RuntimeHandlers...) {
		resp.RuntimeHandlers = append(resp.RuntimeHandlers, &runtimeapi.RuntimeHandler{
			Name: h, Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true},
		})
	}
	if req.Verbose {
		resp.Info = map[string]string{"simulated": "true"}
	}
	return leave(ctx, f, resp)
}

// RuntimeConfig returns the cgroup driver of the runtime.
func (r *Runtime) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	f, err := r.enter(ctx, "RuntimeConfig", nil)
	if err != nil {
		return nil, err
	}
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if r.cfg.SystemdCgroups {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return leave(ctx, f, &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver},
	})
}

// UpdateRuntimeConfig sets the node's pod CIDRs. Addresses in use stay.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, req *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	f, err := r.enter(ctx, "UpdateRuntimeConfig", nil)
	if err != nil {
		return nil, err
	}
	if cidrs := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr(); cidrs != "" {
		var prefixes []netip.Prefix
		for s := range strings.SplitSeq(cidrs, ",") {
			p, err := netip.ParsePrefix(strings.TrimSpace(s))
			if err != nil {
				return nil, errInvalid("runtime_config.network_config.pod_cidr: %v", err)
			}
			prefixes = append(prefixes, p)
		}
		r.mu.Lock()
		if !slices.EqualFunc(r.cidrs, prefixes, func(a addresses, p netip.Prefix) bool { return a.prefix == p.Masked() }) {
			r.cidrs = ranges(prefixes)
		}
		r.mu.Unlock()
	}
	return leave(ctx, f, &runtimeapi.UpdateRuntimeConfigResponse{})
}

// UpdatePodSandboxResources does nothing, because a simulated sandbox has no cgroup.
func (r *Runtime) UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	f, err := r.enter(ctx, "UpdatePodSandboxResources", r.ofSandbox(req.PodSandboxId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	s := find(r.sandboxes, req.PodSandboxId)
	r.mu.Unlock()
	if s == nil {
		return nil, errNotFound("sandbox", req.PodSandboxId)
	}
	return leave(ctx, f, &runtimeapi.UpdatePodSandboxResourcesResponse{})
}

// ContainerStats returns the usage of one container.
func (r *Runtime) ContainerStats(ctx context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	f, err := r.enter(ctx, "ContainerStats", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := find(r.containers, req.ContainerId)
	if c == nil {
		r.mu.Unlock()
		return nil, errNotFound("container", req.ContainerId)
	}
	resp := &runtimeapi.ContainerStatsResponse{Stats: r.stats(c, time.Now())}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// ListContainerStats returns the usage of running containers.
func (r *Runtime) ListContainerStats(ctx context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	f, err := r.enter(ctx, "ListContainerStats", nil)
	if err != nil {
		return nil, err
	}
	filter := req.GetFilter()
	resp := &runtimeapi.ListContainerStatsResponse{}
	now := time.Now()
	r.mu.Lock()
	for _, c := range r.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING && strings.HasPrefix(c.id, filter.GetId()) &&
			strings.HasPrefix(c.sb.id, filter.GetPodSandboxId()) && c.labels.match(filter.GetLabelSelector()) {
			resp.Stats = append(resp.Stats, r.stats(c, now))
		}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// PodSandboxStats returns the usage of one sandbox.
func (r *Runtime) PodSandboxStats(ctx context.Context, req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	f, err := r.enter(ctx, "PodSandboxStats", r.ofSandbox(req.PodSandboxId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	s := find(r.sandboxes, req.PodSandboxId)
	if s == nil {
		r.mu.Unlock()
		return nil, errNotFound("sandbox", req.PodSandboxId)
	}
	resp := &runtimeapi.PodSandboxStatsResponse{Stats: r.podStats(s, time.Now())}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// ListPodSandboxStats returns the usage of ready sandboxes.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f, err := r.enter(ctx, "ListPodSandboxStats", nil)
	if err != nil {
		return nil, err
	}
	filter := req.GetFilter()
	resp := &runtimeapi.ListPodSandboxStatsResponse{}
	now := time.Now()
	r.mu.Lock()
	for _, s := range r.sandboxes {
		if !s.stopped && strings.HasPrefix(s.id, filter.GetId()) && s.labels.match(filter.GetLabelSelector()) {
			resp.Stats = append(resp.Stats, r.podStats(s, now))
		}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// ListMetricDescriptors returns no descriptors, because simcri has no metrics of its own.
func (r *Runtime) ListMetricDescriptors(ctx context.Context, _ *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	f, err := r.enter(ctx, "ListMetricDescriptors", nil)
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, &runtimeapi.ListMetricDescriptorsResponse{})
}

// ListPodSandboxMetrics returns the ready sandboxes, without metrics.
func (r *Runtime) ListPodSandboxMetrics(ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	f, err := r.enter(ctx, "ListPodSandboxMetrics", nil)
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListPodSandboxMetricsResponse{}
	r.mu.Lock()
	for _, s := range r.sandboxes {
		if !s.stopped {
			resp.PodMetrics = append(resp.PodMetrics, &runtimeapi.PodSandboxMetrics{PodSandboxId: s.id})
		}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}
