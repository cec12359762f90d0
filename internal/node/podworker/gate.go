package podworker

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Gate bounds how many pods are being started at once, first come, first served. A pod keeps its place from its
// first starting action until it has nothing more to start, so that under load pods finish one after another
// rather than all at the end.
type Gate struct {
	places int
	wake   func(types.UID)

	mu      sync.Mutex
	inside  map[types.UID]bool
	waiting []types.UID
}

// NewGate returns a Gate with the given number of places; wake is called, outside the lock, for a pod that gets
// a place it waited for.
func NewGate(places int, wake func(types.UID)) *Gate {
	return &Gate{places: max(1, places), wake: wake, inside: map[types.UID]bool{}}
}

// Enter reports whether the pod has a place; otherwise it is queued and woken later. Idempotent.
func (g *Gate) Enter(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[uid] {
		return true
	}
	if len(g.inside) < g.places && len(g.waiting) == 0 {
		g.inside[uid] = true
		return true
	}
	if !slices.Contains(g.waiting, uid) {
		g.waiting = append(g.waiting, uid)
	}
	return false
}

// Leave gives up the pod's place, or its wait for one. Idempotent.
func (g *Gate) Leave(uid types.UID) {
	g.mu.Lock()
	if i := slices.Index(g.waiting, uid); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	delete(g.inside, uid)
	var next []types.UID
	for len(g.waiting) > 0 && len(g.inside) < g.places {
		next = append(next, g.waiting[0])
		g.inside[g.waiting[0]] = true
		g.waiting = slices.Delete(g.waiting, 0, 1)
	}
	if len(g.waiting) == 0 {
		g.waiting = nil
	}
	g.mu.Unlock()
	for _, uid := range next {
		g.wake(uid)
	}
}
