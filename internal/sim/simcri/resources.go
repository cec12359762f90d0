package simcri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateContainerResources changes the resources of a container that has not exited.
func (r *Runtime) UpdateContainerResources(ctx context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	f, err := r.enter(ctx, "UpdateContainerResources", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := find(r.containers, req.ContainerId)
	switch {
	case c == nil:
		err = errNotFound("container", req.ContainerId)
	case c.state == runtimeapi.ContainerState_CONTAINER_EXITED:
		err = status.Errorf(codes.Unknown, "failed to update resources: container %q is in %s state", c.id, c.state)
	default:
		c.account(time.Now())
		c.resources = mergeResources(c.resources, req.Linux)
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			if c.noRoom && !c.stopped {
				b := r.behavior(c)
				c.noRoom = false
				c.endsAt, c.ending = c.ownEnd(&b)
			}
			r.limitMemory(c)
			r.plan(c)
		}
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, &runtimeapi.UpdateContainerResourcesResponse{})
}

// mergeResources returns old with the values of change. It modifies neither, since callers may share them.
func mergeResources(old, change *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	if change == nil {
		return old
	}
	pick := func(a, b int64) int64 {
		if b != 0 {
			return b
		}
		return a
	}
	out := &runtimeapi.LinuxContainerResources{
		CpuPeriod:              pick(old.GetCpuPeriod(), change.CpuPeriod),
		CpuQuota:               pick(old.GetCpuQuota(), change.CpuQuota),
		CpuShares:              pick(old.GetCpuShares(), change.CpuShares),
		MemoryLimitInBytes:     pick(old.GetMemoryLimitInBytes(), change.MemoryLimitInBytes),
		OomScoreAdj:            pick(old.GetOomScoreAdj(), change.OomScoreAdj),
		MemorySwapLimitInBytes: pick(old.GetMemorySwapLimitInBytes(), change.MemorySwapLimitInBytes),
		CpusetCpus:             old.GetCpusetCpus(), CpusetMems: old.GetCpusetMems(),
		HugepageLimits: old.GetHugepageLimits(), Unified: old.GetUnified(),
	}
	if change.CpusetCpus != "" {
		out.CpusetCpus = change.CpusetCpus
	}
	if change.CpusetMems != "" {
		out.CpusetMems = change.CpusetMems
	}
	if len(change.HugepageLimits) > 0 {
		out.HugepageLimits = change.HugepageLimits
	}
	if len(change.Unified) > 0 {
		out.Unified = change.Unified
	}
	return out
}
