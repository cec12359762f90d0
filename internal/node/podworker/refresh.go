package podworker

import (
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// freeRefreshes is how often in a row the volumes of a pod are set up again without a wait. longestRefreshWait is the longest wait.
const (
	freeRefreshes      = 4
	longestRefreshWait = time.Minute
)

// refreshes spaces the set-ups of volumes whose objects change all the time. Each of them writes all changed files again, and ends the
// back-offs of the pod, so whoever may change a ConfigMap could otherwise keep the node busy and have a container that cannot start
// tried without pause. After freeRefreshes the wait is 1 s, and it doubles; it ends after a pause of more than twice the wait. nil: no
// refresh yet.
type refreshes struct {
	last  time.Time
	inRow int
}

// wait returns how long after the last refresh the next one may come.
func (r *refreshes) wait() time.Duration {
	if r == nil || r.inRow < freeRefreshes {
		return 0
	}
	return min(time.Second<<min(r.inRow-freeRefreshes, 10), longestRefreshWait)
}

// and returns r with one more refresh.
func (r *refreshes) and(now time.Time) *refreshes {
	if r == nil || now.Sub(r.last) > 2*r.wait()+2*time.Second {
		return &refreshes{last: now, inRow: 1}
	}
	return &refreshes{last: now, inRow: r.inRow + 1}
}

// next returns when the next refresh may come.
func (r *refreshes) next() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.last.Add(r.wait())
}

// refreshAt returns when the volumes have to be set up again; false: they need not be, or a set-up is in flight. That set-up may have read the
// old objects, so another one follows after its end, which makes the worker take a turn.
func (w *Worker) refreshAt(inFlight []pod.Action) (at time.Time, owed bool) {
	if !w.owed || slices.ContainsFunc(inFlight, func(a pod.Action) bool { return a.Op == pod.OpSetUp }) {
		return time.Time{}, false
	}
	return w.refreshes.next(), true
}
