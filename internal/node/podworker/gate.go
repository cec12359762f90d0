package podworker

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	basework "github.com/wherry-node/wherry/internal/base/work"
)

// Gate bounds how many pods are being started at once, first come, first served. A pod keeps its place from its first starting
// action until it has nothing more to start, so that under load pods finish one after another rather than all at the end. Between
// two bounds, the number of places adapts to how many starts the machine can do at once.
type Gate struct {
	wake func(types.UID)

	mu      sync.Mutex
	places  basework.Places
	inside  map[types.UID]stay
	waiting []types.UID
}

// stay is when a pod got its place, and how many pods had one then.
type stay struct {
	since time.Time
	among int
}

// NewGate returns a Gate with between least and most places. It calls wake, without a lock held, for a pod that gets a place
// after a wait.
func NewGate(least, most int, wake func(types.UID)) *Gate {
	return &Gate{places: basework.NewPlaces(least, most, time.Now()), wake: wake, inside: map[types.UID]stay{}}
}

// Enter reports whether the pod has a place; otherwise it is queued and woken later. Enter is idempotent.
func (g *Gate) Enter(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.inside[uid]; ok {
		return true
	}
	if len(g.inside) < g.places.Now() && len(g.waiting) == 0 {
		g.admit(uid)
		return true
	}
	if !slices.Contains(g.waiting, uid) {
		g.waiting = append(g.waiting, uid)
	}
	return false
}

// admit gives a pod a place. It is called with the lock held.
func (g *Gate) admit(uid types.UID) {
	g.inside[uid] = stay{since: time.Now(), among: len(g.inside) + 1}
}

// Finish is Leave for a pod that has been started. The Gate adapts the number of places to how long the start took.
func (g *Gate) Finish(uid types.UID) {
	g.mu.Lock()
	if s, ok := g.inside[uid]; ok {
		g.places.Ended(s.since, time.Now(), float64(s.among+len(g.inside))/2, len(g.waiting) > 0)
	}
	g.mu.Unlock()
	g.Leave(uid)
}

// Leave gives up the pod's place, or removes it from the queue. Leave is idempotent.
func (g *Gate) Leave(uid types.UID) {
	g.mu.Lock()
	if i := slices.Index(g.waiting, uid); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	delete(g.inside, uid)
	var next []types.UID
	for len(g.waiting) > 0 && len(g.inside) < g.places.Now() {
		next = append(next, g.waiting[0])
		g.admit(g.waiting[0])
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
