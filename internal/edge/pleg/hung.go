package pleg

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// HungFor is how long an inspection may take before the node reports it as hung. Until the inspection ends, the node neither
// starts nor reports anything of the pod.
const HungFor = 30 * time.Second

// Hung returns, sorted by UID, the pods whose inspection in flight has run for longer than d, and the pods whose last inspection was
// canceled because it hung.
func (g *Generator) Hung(d time.Duration) []pod.Ref {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []pod.Ref
	for uid, e := range g.entries {
		if c := e.inspection; c != nil && time.Since(c.began) > d || e.hung {
			ref := e.obs.Ref
			ref.UID = uid
			out = append(out, ref)
		}
	}
	inorder.Sort(out, func(a, b pod.Ref) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Trouble describes the problem with the inspections of a pod.
type Trouble struct {
	Hangs time.Duration // how long the inspection in flight has hung; 0: no inspection hangs
	Error string        // why the last inspection failed; "": it succeeded
}

// Trouble returns the problem with a pod's inspections. While there is a problem, the node's view of the pod is as old as the last
// inspection that succeeded.
func (g *Generator) Trouble(uid types.UID) (t Trouble) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entries[uid]
	if e == nil {
		return t
	}
	if c := e.inspection; c != nil && time.Since(c.began) > hangs {
		t.Hangs = time.Since(c.began)
	}
	if e.failed != nil {
		t.Error = e.failed.why
	}
	return t
}

// reportHung calls OnHung if the set of hung pods has changed. Only the relist goroutine calls it.
func (g *Generator) reportHung() {
	now := g.Hung(HungFor)
	if g.cfg.OnHung == nil || slices.EqualFunc(now, g.hung, func(a, b pod.Ref) bool { return a.UID == b.UID }) {
		return
	}
	g.hung = now
	g.cfg.OnHung(now)
}
