package pleg

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/pod"
)

// HungFor is how long an inspection takes of which the node speaks as hung: nothing is started or reported of its pod
// meanwhile.
const HungFor = 30 * time.Second

// Hung returns the pods whose inspection has been under way for longer than d, or hung until it was given up and has not
// gone well since; by UID.
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
	slices.SortFunc(out, func(a, b pod.Ref) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Trouble is what is wrong with a pod's inspections.
type Trouble struct {
	Hangs time.Duration // how long one has been under way that hangs; 0: none
	Error string        // of the last one, which failed; "": it did not
}

// Trouble says what is wrong with the inspections of a pod: what the node says of it is as old as its last good one.
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

// tellHung says which pods hang, if they are others than before. Only the relists' goroutine calls it.
func (g *Generator) tellHung() {
	now := g.Hung(HungFor)
	if g.cfg.OnHung == nil || slices.EqualFunc(now, g.hung, func(a, b pod.Ref) bool { return a.UID == b.UID }) {
		return
	}
	g.hung = now
	g.cfg.OnHung(now)
}
