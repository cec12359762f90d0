package syncloop

import (
	"k8s.io/apimachinery/pkg/types"
)

// Life is the stage of life of a pod with a worker.
type Life struct {
	UID types.UID
	// Static is set if a source has, or had, the pod as a static pod. Sourced is set if any source has, or had, the pod.
	Static, Sourced bool
	// Ends is set while the pod is being ended, and Ended when it no longer uses resources of the node.
	Ends, Ended bool
	// Pending is the reason why a resize waits (Deferred or Infeasible); "": no resize waits. Resizing is set while an accepted resize
	// is carried out.
	Pending  string
	Resizing bool
}

// Census returns every pod that has a worker, in no order. It does no IO.
func (l *Loop) Census() []Life {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Life, 0, len(l.workers))
	for uid, m := range l.workers {
		out = append(out, Life{
			UID: uid, Static: m.static, Sourced: m.sourced, Ends: m.endsBy != nil, Ended: m.ended, Pending: l.resizes.Pending(uid), Resizing: m.resizing,
		})
	}
	return out
}
