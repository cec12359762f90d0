package perform

import (
	"context"
	"fmt"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// resize gives a running container, or the pod's group, its new size. Doing it twice changes nothing.
func (x *Performer) resize(ctx context.Context, job pod.Job) pod.Outcome {
	if job.Action.Container == "" {
		if _, err := x.cfg.Cgroups.EnsurePod(ctx, job.Pod, job.Action.Size); err != nil {
			return failed("ResizeError", fmt.Errorf("resize the pod's cgroup: %w", err))
		}
		x.tellSandbox(ctx, job)
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

// tellSandbox tells the runtime of the pod's new size, once the group has it: a runtime that keeps pods in virtual machines
// follows. The group is what binds, so a refusal is said and changes nothing.
func (x *Performer) tellSandbox(ctx context.Context, job pod.Job) {
	sandbox := job.Observed.NewestSandbox()
	if sandbox == nil || !sandbox.Ready {
		return
	}
	facts := x.cfg.Facts()
	resources, overhead := crispec.SandboxResources(job.Pod, &facts.Spec)
	if err := x.cfg.CRI.UpdateSandboxResources(ctx, sandbox.ID, resources, overhead); err != nil {
		x.cfg.Log.Warn("the runtime was not told the new size of a pod", "pod", job.Ref, "err", err)
	}
}

// mayShrink refuses a memory limit below what the container uses: the kernel would end it rather than fail. It is a best
// effort, since the container may grow between the look and the change, or the runtime not say what it uses.
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
