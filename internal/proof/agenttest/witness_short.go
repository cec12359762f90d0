package agenttest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// shortage is what the Witness knows of a machine that runs short.
type shortage struct {
	// now measures whether the machine is short; nil: it never is. It is called without the lock.
	now func() bool
	is  bool // the machine was short when the call that is judged was made
	// victims are the pods that an agent may have evicted: it stopped a container of theirs while the machine was short.
	victims map[types.UID]time.Time
}

// secondVictim is how long after one victim another one may be asked to go although the first one still runs.
const secondVictim = 30 * time.Second

// evicts returns the cause of a stop while the machine is short, or after it was: no critical pod may go, and no second pod while the
// first one still runs.
func (w *Witness) evicts(uid types.UID, spec *v1.PodSpec) (cause, bool) {
	if since, was := w.shortage.victims[uid]; was {
		return cause{"it was evicted", since, 0, true}, true
	}
	if !w.shortage.is || crispec.IsCritical(&v1.Pod{Spec: *spec}) {
		return cause{}, false
	}
	for other, since := range w.shortage.victims {
		if time.Since(since) < secondVictim && w.runs(other) {
			return cause{}, false
		}
	}
	if w.shortage.victims == nil {
		w.shortage.victims = map[types.UID]time.Time{}
	}
	w.shortage.victims[uid] = time.Now()
	return cause{"the machine is short", time.Now(), 0, true}, true
}

// runs reports whether a container of a pod runs.
func (w *Witness) runs(uid types.UID) bool {
	for _, c := range w.containers {
		if c.UID == uid && c.Running {
			return true
		}
	}
	return false
}
