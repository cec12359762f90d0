package perform

import (
	"context"
	"fmt"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// resize gives a running container, or the pod's cgroup, its new size. It is idempotent.
func (x *Performer) resize(ctx context.Context, job pod.Job) pod.Outcome {
	if job.Action.Container == "" {
		if _, err := x.cfg.Cgroups.EnsurePod(ctx, job.Pod, job.Action.Size); err != nil {
			return failed("ResizeError", fmt.Errorf("resize the pod's cgroup: %w", err))
		}
		x.resizeSandbox(ctx, job)
		return pod.Outcome{}
	}
	c, err := container(job.Pod, job.Action.Container)
	if err != nil {
		return failed("ResizeError", err)
	}
	if err := x.mayShrink(ctx, job); err != nil {
		return failed("ResizeError", err)
	}
	facts := x.cfg.Facts()
	if err := x.cfg.CRI.UpdateResources(ctx, job.Action.ID, crispec.ContainerResources(job.Pod, c, &facts.Spec)); err != nil {
		return failed("ResizeError", err)
	}
	return pod.Outcome{ID: job.Action.ID}
}

// resizeSandbox informs the runtime of the pod's new size after the cgroup has it, for runtimes that keep pods in virtual
// machines. The cgroup enforces the size, so a refusal is only logged.
func (x *Performer) resizeSandbox(ctx context.Context, job pod.Job) {
	sandbox := job.Observed.NewestSandbox()
	if sandbox == nil || !sandbox.Ready {
		return
	}
	facts := x.cfg.Facts()
	resources, overhead := crispec.SandboxResources(job.Pod, &facts.Spec)
	if err := x.cfg.CRI.UpdateSandboxResources(ctx, sandbox.ID, resources, overhead); err != nil {
		x.cfg.Log.Warn("the runtime did not accept the new size of a sandbox", "pod", job.Ref, "err", err)
	}
}

// mayShrink refuses a memory limit below the container's usage, because the kernel would accept the limit and kill the container.
// It is a best effort: the container's usage may grow after the check, or the runtime may not report its usage.
func (x *Performer) mayShrink(ctx context.Context, job pod.Job) error {
	limit := job.Action.Size.MemoryLimit
	inst := job.Observed.ByID(job.Action.ID)
	if limit == 0 || inst != nil && inst.Actual.MemoryLimit != 0 && inst.Actual.MemoryLimit <= limit {
		return nil
	}
	if usage, ok := x.cfg.CRI.MemoryUsage(ctx, job.Action.ID); ok && usage >= limit {
		return fmt.Errorf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below current usage (%d)",
			job.Action.Container, limit, usage)
	}
	return nil
}
