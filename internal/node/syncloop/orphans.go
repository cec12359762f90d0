package syncloop

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// sweep creates workers for pods that are neither wanted nor in the runtime but left something on the node. It reads directories,
// which may hang, so Loop.sweeping runs it in a goroutine of its own.
func (l *Loop) sweep() {
	if l.cfg.Leftovers == nil || !l.cfg.Pods.Ready() || !l.cfg.Cache.Synced() {
		return
	}
	left, err := l.cfg.Leftovers(func(uid types.UID) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.workers[uid] != nil
	})
	if err != nil {
		l.cfg.Log.Error("leftovers of pods not listed", "err", err)
	}
	l.noteOrphans(left)
	for _, uid := range left {
		l.look(pod.Ref{UID: uid}, "left something on the node", true, false)
	}
}

// noteOrphans logs each new orphan. It reports two numbers to the meter: all orphans, and those that an earlier sweep found at least a
// housekeeping period ago. Only sweep calls noteOrphans, and there is one sweep at a time.
func (l *Loop) noteOrphans(left []types.UID) {
	l.mu.Lock()
	maps.DeleteFunc(l.orphans, func(uid types.UID, _ time.Time) bool { return l.workers[uid] == nil })
	l.mu.Unlock()
	now, remain := time.Now(), 0
	for _, found := range l.orphans {
		if now.Sub(found) >= l.cfg.Housekeeping {
			remain++
		}
	}
	for _, uid := range left {
		if l.orphans == nil {
			l.orphans = map[types.UID]time.Time{}
		}
		l.orphans[uid] = now
		l.cfg.Log.Info("a pod that no source and no runtime has left something on the node: it is removed", "podUID", uid)
	}
	l.cfg.Meter.Orphans(len(l.orphans), remain)
}
