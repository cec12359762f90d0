package syncloop

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// limitDead makes workers remove dead containers while the node holds more than MaxDeadContainers. It counts the containers of
// all pods together, and those that ended first go first.
func (l *Loop) limitDead() {
	if l.cfg.MaxDeadContainers == nil {
		return
	}
	excess := excessDead(l.cfg.Cache.List(), *l.cfg.MaxDeadContainers)
	l.mu.Lock()
	l.excess = excess
	l.mu.Unlock()
	for uid := range excess {
		l.Look(uid, "the node holds too many dead containers")
	}
}

// excessDead returns the dead containers beyond limit, oldest first, by pod. The newest attempt of a container does not count:
// it shows whether the container has to run again.
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
	slices.SortFunc(found, func(a, b dead) int { return a.ended.Compare(b.ended) })
	out := map[types.UID][]string{}
	for _, d := range found[:len(found)-limit] {
		out[d.uid] = append(out[d.uid], d.id)
	}
	return out
}
