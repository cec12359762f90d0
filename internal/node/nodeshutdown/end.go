package nodeshutdown

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// end ends the groups of pods one after the other, and waits until the API server has the last statuses. It stops between any two steps
// when ctx ends.
func (w *Watch) end(ctx context.Context) {
	over := time.Now().Add(w.cfg.Policy.Whole())
	if !until(ctx, min(knownWithin, w.cfg.Policy.Whole()/4), w.cfg.Pods.Known) && ctx.Err() == nil {
		w.cfg.Log.Warn("not every source has said which pods there are; those that are known end")
	}
	var all []types.UID
	for _, g := range w.cfg.Policy.Groups(w.cfg.Pods.Active()) {
		if ctx.Err() != nil {
			return
		}
		w.cfg.Log.Info("pods end for the machine's shutdown", "priority", g.Priority, "pods", len(g.Pods), "within", g.Wait)
		for _, e := range g.Pods {
			w.cfg.Pods.End(e.UID, &decide.Stop{
				Reason: shutdown.ReasonTerminated, Message: shutdown.MessageTerminated, Disruption: shutdown.MessageTerminated,
				Grace: &e.Grace, Since: time.Now(),
			})
			all = append(all, e.UID)
		}
		began := time.Now()
		left := await(ctx, g.Wait, all[len(all)-len(g.Pods):], w.cfg.Pods.Ended)
		w.cfg.Log.Info("the group's time is over, or its pods have ended", "priority", g.Priority, "took", time.Since(began), "left", len(left))
	}
	if left := await(ctx, min(max(time.Until(over), leastForStatuses), mostForStatuses), all, w.cfg.Pods.Reported); len(left) > 0 && ctx.Err() == nil {
		w.cfg.Log.Warn("the API server does not have the last status of every pod", "pods", len(left), "uids", left[:min(len(left), 10)])
	}
}

// knownWithin bounds how long an agent that starts during a shutdown waits until it knows the pods of the node.
const knownWithin = 5 * time.Second

// await waits until done returns true for all pods, but no longer than bound and only until ctx ends. It returns the pods for which done is
// still false.
func await(ctx context.Context, bound time.Duration, pods []types.UID, done func(types.UID) bool) []types.UID {
	pods = slices.Clone(pods)
	until(ctx, bound, func() bool {
		pods = slices.DeleteFunc(pods, done)
		return len(pods) == 0
	})
	return pods
}

// until waits until ok returns true, but no longer than bound and only until ctx ends. It reports whether ok returned true.
func until(ctx context.Context, bound time.Duration, ok func() bool) bool {
	over := time.NewTimer(bound)
	defer over.Stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return false
		case <-ticker.C:
		}
	}
	return true
}
