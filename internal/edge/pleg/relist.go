package pleg

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// The relist is the safety net under the events: it finds changes that no event announced, and advances the stamps of the cache
// entries (a stamp says when the inspection behind an entry began).

// relistRound relists once, and returns the time until the next relist.
func (g *Generator) relistRound(ctx context.Context) time.Duration {
	g.relistOnce(ctx)
	g.reportHung()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lastErr != nil {
		return g.cfg.Period
	}
	return g.period()
}

func (g *Generator) relistOnce(ctx context.Context) {
	began := time.Now()
	list, cancel := context.WithCancel(ctx)
	defer cancel()
	g.mu.Lock()
	g.listing = call{began: began, cancel: cancel}
	g.mu.Unlock()
	pods, err := g.cfg.Runtime.List(list)
	took := time.Since(began)
	if err != nil {
		g.onRelist(took, err)
		g.mu.Lock()
		first := g.lastErr == nil
		g.lastErr, g.listing = err, call{}
		g.mu.Unlock()
		if first && ctx.Err() == nil {
			g.cfg.Log.Error("the container runtime does not list its pods; trying again", "err", err)
		}
		return
	}
	gone, first := g.merge(began, pods)
	g.onRelist(took, nil)
	if g.cfg.Notify == nil {
		return
	}
	for _, old := range gone {
		if g.cfg.OnEvent != nil {
			for _, ev := range diff(old, &pod.Observed{Ref: old.Ref}) {
				g.cfg.OnEvent(ev)
			}
		}
		g.cfg.Notify(old.Ref.UID)
	}
	if first {
		g.cfg.Notify("")
	}
}

func (g *Generator) onRelist(took time.Duration, err error) {
	if g.cfg.OnRelist != nil {
		g.cfg.OnRelist(took, err)
	}
}

// merge merges a listing into the cache. It returns the pods that are gone, and whether this was the first listing.
func (g *Generator) merge(began time.Time, pods []pod.Observed) (gone []*pod.Observed, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	listed := make(map[types.UID]bool, len(pods))
	for i := range pods {
		uid := pods[i].Ref.UID
		listed[uid] = true
		e := g.entry(uid)
		if e.failed == nil && alike(e.obs, &pods[i]) {
			if began.After(e.stamp) {
				e.stamp = began
			}
			continue
		}
		if e.obs.Empty() && e.obs.Ref.Name == "" { // until the pod is inspected, its name comes from the listing
			e.obs = &pod.Observed{Ref: pods[i].Ref, Began: e.obs.Began}
		}
		g.mark(uid, time.Time{})
	}
	for uid, e := range maps.All(g.entries) {
		if listed[uid] || e.stamp.After(began) || e.inspection != nil {
			continue
		}
		if !e.obs.Empty() || e.failed != nil && !e.failed.asked.IsZero() || e.stamp.IsZero() || e.obs.Ref.Name != "" {
			gone = append(gone, e.obs)
		}
		delete(g.entries, uid)
	}
	first = g.relisted.IsZero()
	if !first {
		g.interval = began.Sub(g.relisted)
	}
	g.relisted, g.finished, g.lastErr, g.listing = began, time.Now(), nil, call{}
	return gone, first
}
