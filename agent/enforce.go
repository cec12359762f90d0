package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
)

// enforceEvery is how long the agent waits before it tries again to limit the cgroups above those of pods.
const enforceEvery = time.Minute

// enforcement creates and limits the cgroups above those of pods. A limit may fail for a while: pods use more memory than it allows, or systemd
// does not answer. Its methods are called one at a time.
type enforcement struct {
	setUp    func(ctx context.Context, capacity v1.ResourceList) error // cgroup.Cgroups.SetUpNode
	capacity v1.ResourceList
	levels   []string // enforceNodeAllocatable
	event    func(eventType, reason, message string)
	log      *slog.Logger
	failed   time.Time // when the last attempt failed; zero: the limits are set
}

// groupCapacity returns what the machine has for all pods together, and tasks, the number of tasks that it can have; 0: not known.
func groupCapacity(s *nodestatus.Settings, f *nodestatus.Facts, tasks int64) v1.ResourceList {
	out := nodestatus.Capacity(s, f)
	if tasks > 0 {
		out[nodestatus.ResourcePIDs] = *resource.NewQuantity(tasks, resource.DecimalSI)
	}
	return out
}

// set creates the cgroups and sets their limits. If only a limit cannot be set, it records an event, and again will try once more. If the
// cgroups cannot be created, it returns an error.
func (e *enforcement) set(ctx context.Context, now time.Time) error {
	err := e.setUp(ctx, e.capacity)
	switch {
	case errors.Is(err, cgroup.ErrNotEnforced):
		if e.failed.IsZero() {
			e.log.Warn("node allocatable is not enforced on cgroups, will retry", "every", enforceEvery, "err", err)
			e.event(v1.EventTypeWarning, nodestatus.EventAllocatableFailed, "Failed to update Node Allocatable Limits: "+err.Error())
		}
		e.failed = now
		return nil
	case err != nil:
		return err
	}
	e.failed = time.Time{}
	if slices.Contains(e.levels, "pods") {
		e.event(v1.EventTypeNormal, nodestatus.EventAllocatableEnforced, "Updated Node Allocatable limit across pods")
	}
	return nil
}

// again does the same as set if the last attempt failed at least enforceEvery ago.
func (e *enforcement) again(ctx context.Context, now time.Time) {
	if e == nil || e.failed.IsZero() || now.Sub(e.failed) < enforceEvery {
		return
	}
	if err := e.set(ctx, now); err != nil {
		e.failed = now
		e.log.Warn("cgroups not set up, will retry", "every", enforceEvery, "err", err)
	}
}
