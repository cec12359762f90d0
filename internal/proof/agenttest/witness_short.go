package agenttest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// shortage records what the Witness knows about a shortage of the machine's memory or disk space.
type shortage struct {
	// now reports whether the machine is short of memory or disk space at present; nil: it never is. now is called without locks.
	now func() bool
	is  bool // the machine was short when the call that is being checked was made
	// nowMemory and memory say the same about memory alone.
	nowMemory func() bool
	memory    bool
	// victims has the pods that an agent may have evicted, each with the time: the agent stopped a container of the pod while the machine
	// was short. killable has those of them that an agent may kill without asking them to end, because memory was short.
	victims  map[types.UID]time.Time
	killable map[types.UID]bool
}

// look notes whether the machine is short now. It is called without locks; note, which it returns, is called with them.
func (s *shortage) look() (note func()) {
	if s.now == nil {
		return func() {}
	}
	is, memory := s.now(), s.nowMemory()
	return func() { s.is, s.memory = is, memory }
}

// secondVictim is how long an agent has to wait after an eviction before it may evict another pod while the first one still runs.
const secondVictim = 30 * time.Second

// evicts returns the cause of a stop of the pod if the stop may be an eviction: the machine is short, or was short when the agent first
// stopped a container of this pod. It returns false for a critical pod, and for a second pod if an earlier victim still runs and
// was evicted less than secondVictim ago.
func (w *Witness) evicts(uid types.UID, spec *v1.PodSpec) (cause, bool) {
	if since, was := w.shortage.victims[uid]; was {
		w.shortage.note(uid)
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
	w.shortage.note(uid)
	return cause{"the machine is short", time.Now(), 0, true}, true
}

// note records that a victim may be killed without being asked to end, if memory is short.
func (s *shortage) note(uid types.UID) {
	if !s.memory {
		return
	}
	if s.killable == nil {
		s.killable = map[types.UID]bool{}
	}
	s.killable[uid] = true
}

// runs reports whether a container of the pod runs.
func (w *Witness) runs(uid types.UID) bool {
	for _, c := range w.containers {
		if c.UID == uid && c.Running {
			return true
		}
	}
	return false
}
