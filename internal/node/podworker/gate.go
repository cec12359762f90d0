package podworker

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	basework "github.com/wherry-node/wherry/internal/base/work"
)

// Gate bounds how many pods are being started at once. Each of them has a slot. A pod keeps its slot from its first action that starts
// something until it has nothing more to start, so that under load pods finish one after another rather than all at the end. Between two
// bounds, the number of slots adapts to how many starts the machine can do at once.
//
// Pods that wait are served first come, first served, in two queues: one for pods that start, and one for pods that only start containers
// again. A person may wait for a pod that starts. Pods whose containers crash in a loop may be many, and nobody waits for them, so most
// free slots go to the first queue. A single container that crashed does not wait long either, because then the second queue is short.
type Gate struct {
	wake func(types.UID)

	mu       sync.Mutex
	slots    basework.Slots
	inside   map[types.UID]stay
	starts   []types.UID // pods that wait to start
	restarts []types.UID // pods that wait to restart containers
	passed   int         // how many pods of the queue starts got a slot since the last pod of the queue restarts got one
}

// startsPerRestart is how many waiting pods of the first queue get a slot before the next pod of the second queue gets one.
const startsPerRestart = 4

// stay is when a pod got its slot, and how many pods had one then.
type stay struct {
	since time.Time
	among int
}

// NewGate returns a Gate with between least and most slots. It calls wake, without a lock held, for a pod that gets a slot after a wait.
func NewGate(least, most int, wake func(types.UID)) *Gate {
	return &Gate{slots: basework.NewSlots(least, most, time.Now()), wake: wake, inside: map[types.UID]stay{}}
}

// Enter gives the pod a slot and returns true, or queues the pod and returns false; in the second case wake is called when the pod gets a
// slot. restarts says that the pod only starts containers that have run before. Enter is idempotent: a pod that waits stays in its queue.
func (g *Gate) Enter(uid types.UID, restarts bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.inside[uid]; ok {
		return true
	}
	if len(g.inside) < g.slots.Now() && g.waiting() == 0 {
		g.admit(uid)
		return true
	}
	switch {
	case slices.Contains(g.starts, uid), slices.Contains(g.restarts, uid):
	case restarts:
		g.restarts = append(g.restarts, uid)
	default:
		g.starts = append(g.starts, uid)
	}
	return false
}

// Place returns the place of a pod in its queue, 1 for the next one, and the length of the queue; 0 if the pod does not wait.
func (g *Gate) Place(uid types.UID) (place, length int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, line := range [][]types.UID{g.starts, g.restarts} {
		if i := slices.Index(line, uid); i >= 0 {
			return i + 1, len(line)
		}
	}
	return 0, 0
}

// Inside reports whether a pod has a slot.
func (g *Gate) Inside(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.inside[uid]
	return ok
}

// waiting returns the number of pods in both queues. It is called with the lock held.
func (g *Gate) waiting() int { return len(g.starts) + len(g.restarts) }

// next removes the pod that gets the next free slot from its queue. It is called with the lock held, and only while a pod waits.
func (g *Gate) next() types.UID {
	line := &g.starts
	if len(g.starts) == 0 || len(g.restarts) > 0 && g.passed >= startsPerRestart {
		line, g.passed = &g.restarts, 0
	} else {
		g.passed++
	}
	uid := (*line)[0]
	if *line = slices.Delete(*line, 0, 1); len(*line) == 0 {
		*line = nil
	}
	return uid
}

// admit gives a pod a slot. It is called with the lock held.
func (g *Gate) admit(uid types.UID) {
	g.inside[uid] = stay{since: time.Now(), among: len(g.inside) + 1}
}

// Line is the state of a Gate.
type Line struct {
	Slots, Inside    int // how many pods may start at once, and how many are starting now
	Starts, Restarts []types.UID
}

// Line returns a copy of the present state. Starts and Restarts are the pods that wait, the next one first.
func (g *Gate) Line() Line {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Line{Slots: g.slots.Now(), Inside: len(g.inside), Starts: slices.Clone(g.starts), Restarts: slices.Clone(g.restarts)}
}

// Finish gives up the slot of a pod that has been started. The Gate adapts the number of slots to how long the start took.
func (g *Gate) Finish(uid types.UID) {
	g.mu.Lock()
	if s, ok := g.inside[uid]; ok {
		g.slots.Ended(s.since, time.Now(), float64(s.among+len(g.inside))/2, g.waiting() > 0)
	}
	g.mu.Unlock()
	g.Leave(uid)
}

// Leave gives up the pod's slot, or removes the pod from the queue. Leave is idempotent.
func (g *Gate) Leave(uid types.UID) {
	g.mu.Lock()
	for _, line := range []*[]types.UID{&g.starts, &g.restarts} {
		if i := slices.Index(*line, uid); i >= 0 {
			*line = slices.Delete(*line, i, i+1)
		}
	}
	delete(g.inside, uid)
	var next []types.UID
	for g.waiting() > 0 && len(g.inside) < g.slots.Now() {
		uid := g.next()
		next = append(next, uid)
		g.admit(uid)
	}
	g.mu.Unlock()
	for _, uid := range next {
		g.wake(uid)
	}
}
