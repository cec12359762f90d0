package agent

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/oom"
)

// watchKills reads the kernel's log. Only the agent of a real machine does that.
func (a *Agent) watchKills(ctx context.Context) error {
	return oom.Run(ctx, oom.Config{OnKill: a.killed, Log: a.log})
}

// killed reports a process that the kernel killed. The status of a container shows this only for the container's first process
// (OOMKilled), so for others the report is the only sign.
func (a *Agent) killed(k oom.Kill) {
	uid, container := a.ownerOf(k.Group)
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
	if w := a.loop.Worker(uid); w != nil {
		w.Tell(timeline.Record{At: time.Now(), Kind: timeline.KindEnded, What: process, Error: "killed by the kernel: " + why})
	}
}

// ownerOf returns the pod and the container that a cgroup belongs to; either is "" if it is not known.
func (a *Agent) ownerOf(group string) (uid types.UID, container string) {
	groups, ok := a.platform.cgroups.(*cgroup.Cgroups)
	if !ok {
		return "", ""
	}
	uid, id := groups.Owner(group)
	if uid == "" {
		return "", ""
	}
	observed, _ := a.pleg.Get(uid)
	if c := observed.ByID(id); c != nil {
		container = c.Name
	}
	return uid, container
}
