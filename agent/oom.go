package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/oom"
)

// These limit how reports about killed processes wait until an inspection shows the container of the process: nameWithin is how long one
// report waits, mostUnnamed is how many reports wait at the same time.
const (
	nameWithin  = 3 * time.Second
	mostUnnamed = 16
)

// watchKills reads the kernel's log and reports each process that the kernel killed because memory ran out. Only the agent of a real
// machine does that. If the container of the process is so new that no inspection contains it, the report waits for the next inspection.
func (a *Agent) watchKills(ctx context.Context) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	places := make(chan struct{}, mostUnnamed)
	return oom.Run(ctx, oom.Config{Log: a.log, OnKill: func(k oom.Kill) {
		uid, id := a.ownerOf(k.Group)
		name := a.containerName(uid, id)
		if p, _ := a.pods.Get(uid); p == nil || id == "" || name != "" {
			a.killed(k, uid, id, name)
			return
		}
		select {
		case places <- struct{}{}:
			waiting.Go(func() {
				defer func() { <-places }()
				a.pleg.Inspect(uid)
				a.killed(k, uid, id, awaitName(ctx, func() string { return a.containerName(uid, id) }))
			})
		default:
			a.killed(k, uid, id, "")
		}
	}})
}

// awaitName calls name repeatedly until it returns a name, for at most nameWithin. It returns "" if no call returned a name
// or ctx ended.
func awaitName(ctx context.Context, name func() string) string {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for end := time.Now().Add(nameWithin); ; {
		if n := name(); n != "" || !time.Now().Before(end) {
			return n
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ""
		}
	}
}

// killed reports that the kernel killed a process of a pod's container. The container's status shows this only for the first
// process of the container (OOMKilled); for any other process this report is the only sign. uid, id and container (its name) are "" if
// they are not known.
func (a *Agent) killed(k oom.Kill, uid types.UID, id, container string) {
	a.log.Warn("the kernel killed a process because memory ran out", "process", k.Name, "pid", k.PID, "system", k.System, "pod", uid, "container", container, "cgroup", k.Group)
	if k.System {
		a.events.NodeEvent(v1.EventTypeWarning, "SystemOOM", fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Name, k.PID))
	}
	why := "its container or pod reached its memory limit"
	if k.System {
		why = "the node ran out of memory"
	}
	process := fmt.Sprintf("process %s (pid %d)", k.Name, k.PID)
	if container != "" {
		process += " of container " + container
	}
	if p, _ := a.pods.Get(uid); p != nil {
		a.events.Event(p, container, v1.EventTypeWarning, "OOMKilling", fmt.Sprintf("The kernel killed %s: %s", process, why))
	}
	observed, _ := a.pleg.Get(uid)
	if c := observed.ByID(id); c != nil {
		a.stats.Killed(observed.Ref, c, k.Group)
	}
	if w := a.loop.Worker(uid); w != nil {
		w.Tell(timeline.Record{At: time.Now(), Kind: timeline.KindEnded, What: process, Error: "killed by the kernel: " + why})
	}
}

// ownerOf returns the pod that a cgroup belongs to, and the ID of the container; either is "" if it is not known.
func (a *Agent) ownerOf(group string) (uid types.UID, id string) {
	groups, ok := a.platform.cgroups.(*cgroup.Cgroups)
	if !ok {
		return "", ""
	}
	return groups.Owner(group)
}

// containerName returns the name of a container in the newest inspection of its pod; "": the inspection does not have it.
func (a *Agent) containerName(uid types.UID, id string) string {
	observed, _ := a.pleg.Get(uid)
	if c := observed.ByID(id); c != nil {
		return c.Name
	}
	return ""
}
