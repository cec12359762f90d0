package syncloop

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// limitDead makes workers remove dead containers while the node holds more than MaxDeadContainers. It counts the containers of
// all pods together. Those that ended first are removed first.
func (l *Loop) limitDead() {
	if l.cfg.MaxDeadContainers == nil {
		return
	}
	excess := excessDead(l.cfg.Cache.List(), *l.cfg.MaxDeadContainers)
	l.mu.Lock()
	l.tooMany = excess
	l.mu.Unlock()
	for uid := range excess {
		l.Look(uid, "the node holds too many dead containers")
	}
}

// excessDead returns the dead containers that have to be removed, by pod, so that the node has no more than limit: those that ended first.
// It neither counts nor returns the newest attempt of a container, because its exit code decides whether the container has to run again.
func excessDead(all []*pod.Observed, limit int) map[types.UID][]string {
	type dead struct {
		uid   types.UID
		id    string
		ended time.Time
	}
	var found []dead
	for _, o := range all {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == pod.StateExited && o.Newest(c.Name) != c {
				found = append(found, dead{o.Ref.UID, c.ID, c.FinishedAt})
			}
		}
	}
	if len(found) <= limit {
		return nil
	}
	inorder.Sort(found, func(a, b dead) int { return a.ended.Compare(b.ended) })
	out := map[types.UID][]string{}
	for _, d := range found[:len(found)-limit] {
		out[d.uid] = append(out[d.uid], d.id)
	}
	return out
}

// These constants are the times that RemoveDead uses.
const (
	// removeStep is how often RemoveDead checks whether the containers are gone.
	removeStep = 100 * time.Millisecond
	// reportWithin limits how long RemoveDead waits until the API server has the last status of a pod that the node has ended. Until
	// then it keeps the pod's containers. After that it removes them, and the agent keeps the status in memory.
	reportWithin = 2 * time.Second
)

// RemoveDead removes dead containers that are kept for their logs: all attempts but the newest of each container, and all
// containers of pods whose end the API server knows, or that the node itself has ended. It waits until they are removed or ctx
// ends, and returns how many are removed. Only one call may run at a time.
func (l *Loop) RemoveDead(ctx context.Context) int {
	asked := map[string]bool{}
	t := time.NewTicker(removeStep)
	defer t.Stop()
	for {
		dead, waits := l.dead(time.Now())
		l.mu.Lock()
		l.short = dead
		l.mu.Unlock()
		left := 0
		for uid, ids := range dead {
			left += len(ids)
			for _, id := range ids {
				if !asked[id] {
					asked[id] = true
					l.Look(uid, "the node is short of disk space")
				}
			}
		}
		if left == 0 && !waits {
			return len(asked)
		}
		select {
		case <-ctx.Done():
			return len(asked) - left
		case <-t.C:
		}
	}
}

// dead returns the containers that RemoveDead removes, by pod. waits says that more containers will follow within reportWithin.
func (l *Loop) dead(now time.Time) (out map[types.UID][]string, waits bool) {
	all := l.cfg.Cache.List()
	if out = excessDead(all, 0); out == nil {
		out = map[types.UID][]string{}
	}
	for _, o := range all {
		p, _ := l.cfg.Pods.Get(o.Ref.UID)
		if p == nil {
			continue
		}
		reported := decide.EndReported(p)
		if !reported && (pod.IsStatic(p) || !l.stopped(o.Ref.UID)) {
			continue
		}
		for i := range o.Containers {
			c := &o.Containers[i]
			if c.State != pod.StateExited || o.Newest(c.Name) != c {
				continue
			}
			if since := now.Sub(c.FinishedAt); !reported && since >= 0 && since < reportWithin {
				waits = true
				continue
			}
			out[o.Ref.UID] = append(out[o.Ref.UID], c.ID)
		}
	}
	return out, waits
}

// stopped reports whether the node has ended a pod for a reason of its own, and nothing of it runs or is mounted.
func (l *Loop) stopped(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.workers[uid]
	return m != nil && m.stopped
}
