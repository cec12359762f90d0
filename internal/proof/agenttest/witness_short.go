package agenttest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// shortage is what the Witness knows about a machine that runs short of memory or disk.
type shortage struct {
	// now reports whether the machine is short; nil: the machine is never short. It is called with no lock held.
	now func() bool
	is  bool // the machine was short when the call that is being checked was made
	// victims are the pods that an agent may have evicted, because it stopped one of their containers while the machine was
	// short.
	victims map[types.UID]time.Time
}

// secondVictim is how long after one eviction another pod may be evicted although the first one still runs.
const secondVictim = 30 * time.Second

// evicts returns the cause of a stop during or after a shortage of the machine. It returns false for a critical pod, or for a
// second pod while the first one still runs.
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

// runs reports whether any container of a pod runs.
func (w *Witness) runs(uid types.UID) bool {
	for _, c := range w.containers {
		if c.UID == uid && c.Running {
			return true
		}
	}
	return false
}
