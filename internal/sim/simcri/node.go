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

// These constants bound what annotations may ask for, so that sums over many containers do not overflow.
const (
	maxAmount = 1 << 50 // bytes
	maxCores  = 1e6
	// maxCoreSeconds fits into nanoseconds.
	maxCoreSeconds = 9e9
)

// amount returns the value of an annotation that is a number of bytes, or the argument without if the pod has no such annotation.
func (c *container) amount(name string, without uint64) uint64 {
	if v, ok := c.note(name); ok {
		if n, err := parseAmount(v); err == nil {
			return n
		}
	}
	return without
}

// ran returns for how long a container has run.
func (c *container) ran(now time.Time) time.Duration {
	switch {
	case c.started == 0:
		return 0
	case c.finished != 0:
		return time.Duration(c.finished - c.started)
	}
	return now.Sub(time.Unix(0, c.started))
}

// grown returns an amount that grows while the container runs. base is the name of the annotation with the initial amount (default:
// without), and grows is the name of the annotation with the increase per second.
func (c *container) grown(base, grows string, without uint64, now time.Time) uint64 {
	grown := min(float64(c.amount(grows, 0))*c.ran(now).Seconds(), maxAmount)
	return min(c.amount(base, without)+uint64(grown), maxAmount)
}

// layer returns the size of the container's writable layer in bytes. After the container has ended, the size no longer changes.
func (c *container) layer(now time.Time) uint64 {
	if c.do != nil && c.do.Disk != nil && !c.noted(AnnotationDisk, AnnotationDiskGrows) {
		return uint64(c.do.Disk.At(c.ran(now), c.seed()))
	}
	return c.grown(AnnotationDisk, AnnotationDiskGrows, 8<<10, now)
}

// Used returns the resources of the simulated machine that are in use: the memory of running containers and the disk space of
// images and writable layers, in bytes, and the number of processes.
func (r *Runtime) Used() (memory, disk, processes int64) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if _, bytes := c.usage(now); bytes > 0 {
			memory += int64(bytes)
			processes++
		}
		disk += int64(c.layer(now))
	}
	for _, i := range r.images {
		disk += int64(i.size)
	}
	return memory, disk, processes
}

// usage returns the simulated usage of a container: cores and bytes. The caller holds the lock.
func (c *container) usage(now time.Time) (cores float64, memory uint64) {
	cores, memory = 0.001, c.grown(AnnotationMemory, AnnotationMemoryGrows, 10<<20, now)
	if c.do != nil && c.do.Memory != nil && !c.noted(AnnotationMemory, AnnotationMemoryGrows) {
		memory = uint64(c.do.Memory.At(c.ran(now), c.seed()))
	}
	if c.do != nil && c.do.CPU != nil {
		cores = c.do.CPU.At(c.ran(now), c.seed())
	}
	if v, ok := c.note(AnnotationCPU); ok {
		if f, err := parseCores(v); err == nil {
			cores = f
		}
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return 0, 0
	}
	return cores, memory
}

// cpuTime returns the CPU time that a container has used, in nanoseconds.
func (c *container) cpuTime(cores float64, ran time.Duration) uint64 {
	if c.do == nil || c.do.CPU == nil || c.noted(AnnotationCPU) {
		return uint64(cores * float64(ran))
	}
	return uint64(min(c.do.CPU.Sum(ran, c.seed()), maxCoreSeconds) * 1e9)
}

func u64(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// stats returns the usage of a container. The caller holds the lock.
func (r *Runtime) stats(c *container, now time.Time) *runtimeapi.ContainerStats {
	cores, memory := c.usage(now)
	ran := c.ran(now)
	at := now.UnixNano()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.meta, Labels: c.labels, Annotations: c.annotations},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp: at, UsageCoreNanoSeconds: u64(c.cpuTime(cores, ran)), UsageNanoCores: u64(uint64(cores * 1e9)),
		},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: at, WorkingSetBytes: u64(memory), UsageBytes: u64(memory), RssBytes: u64(memory / 2),
			AvailableBytes: u64(available(c, memory)), PageFaults: u64(0), MajorPageFaults: u64(0),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: at, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.cfg.ImageFsPath},
			UsedBytes: u64(c.layer(now)), InodesUsed: u64(10),
		},
	}
}

// available returns how much of the memory limit is left; 0 without a limit.
func available(c *container, memory uint64) uint64 {
	if limit := c.resources.GetMemoryLimitInBytes(); limit > 0 && uint64(limit) > memory {
		return uint64(limit) - memory
	}
	return 0
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
			strings.HasPrefix(c.sb.id, filter.GetPodSandboxId()) && matches(c.labels, filter.GetLabelSelector()) {
			resp.Stats = append(resp.Stats, r.stats(c, now))
		}
	}
	r.mu.Unlock()
	return leave(ctx, f, resp)
}

// podStats returns the usage of a sandbox. The caller holds the lock.
func (r *Runtime) podStats(s *sandbox, now time.Time) *runtimeapi.PodSandboxStats {
	linux := &runtimeapi.LinuxPodSandboxStats{
		Network: &runtimeapi.NetworkUsage{Timestamp: now.UnixNano(), DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: u64(0), TxBytes: u64(0), RxErrors: u64(0), TxErrors: u64(0),
		}},
		Process: &runtimeapi.ProcessUsage{Timestamp: now.UnixNano()},
	}
	var core, nano, memory, processes uint64
	for _, c := range s.containers {
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		st := r.stats(c, now)
		linux.Containers = append(linux.Containers, st)
		core += st.Cpu.UsageCoreNanoSeconds.Value
		nano += st.Cpu.UsageNanoCores.Value
		memory += st.Memory.WorkingSetBytes.Value
		processes++
	}
	linux.Cpu = &runtimeapi.CpuUsage{Timestamp: now.UnixNano(), UsageCoreNanoSeconds: u64(core), UsageNanoCores: u64(nano)}
	linux.Memory = &runtimeapi.MemoryUsage{Timestamp: now.UnixNano(), WorkingSetBytes: u64(memory), UsageBytes: u64(memory)}
	linux.Process.ProcessCount = u64(processes + 1)
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: s.id, Metadata: s.meta, Labels: s.labels, Annotations: s.annotations},
		Linux:      linux,
	}
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
		if !s.stopped && strings.HasPrefix(s.id, filter.GetId()) && matches(s.labels, filter.GetLabelSelector()) {
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
