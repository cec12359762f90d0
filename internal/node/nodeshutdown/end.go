package nodeshutdown

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// end ends the groups one after the other, and waits until the API has the last statuses. ctx ends it between any two steps.
func (w *Watch) end(ctx context.Context) {
	over := time.Now().Add(w.cfg.Policy.Whole())
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
	if left := await(ctx, min(max(time.Until(over), leastForStatuses), mostForStatuses), all, w.cfg.Pods.Told); len(left) > 0 && ctx.Err() == nil {
		w.cfg.Log.Warn("the API server does not have the last status of every pod", "pods", len(left), "uids", left[:min(len(left), 10)])
	}
}

// await waits until done holds for all pods, for bound at most, and returns those for which it does not.
func await(ctx context.Context, bound time.Duration, pods []types.UID, done func(types.UID) bool) []types.UID {
	over := time.NewTimer(bound)
	defer over.Stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	pods = slices.Clone(pods)
	for {
		if pods = slices.DeleteFunc(pods, done); len(pods) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return pods
		case <-over.C:
			return pods
		case <-ticker.C:
		}
	}
}
