package syncloop

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/node/resizes"
)

// Resize decides whether the node accepts the resize that a pod asks for; ok is false while the node cannot decide. Package resizes says
// in which order the node decides.
func (l *Loop) Resize(p *v1.Pod, allocated *pod.Allocation) (r admit.ResizeResult, ok bool) {
	if l.cfg.Resize == nil {
		return admit.ResizeResult{OK: true}, true
	}
	l.refresh()
	l.admission.Lock()
	defer l.admission.Unlock()
	if l.cfg.NodeKnown != nil && !l.cfg.NodeKnown() || !l.cfg.Pods.Known() {
		return r, false
	}
	if _, unread := l.holders(p.UID); unread {
		return r, false
	}
	if l.Worker(p.UID) == nil {
		return r, false
	}
	if allocated.Covers(p) {
		l.resizes.Drop(p.UID)
		l.resizes.Again(resizes.TriggerResized)
		return admit.ResizeResult{OK: true}, true
	}
	if r = l.resizes.Ask(p, allocated); r.OK {
		l.mu.Lock()
		if m := l.workers[p.UID]; m != nil {
			m.allocated = pod.AllocationOf(p)
		}
		l.resizes.Drop(p.UID)
		l.mu.Unlock()
		l.holdsChanged()
	}
	return r, true
}

// retryResizes decides about the waiting resizes again, because resources may be free now. It never waits for IO.
func (l *Loop) retryResizes(trigger string) {
	if l.resizes.Waiting() {
		l.admission.Lock()
		defer l.admission.Unlock()
		l.resizes.Again(trigger)
	}
}

// resizing is the Loop as the queue of resizes sees it.
type resizing struct{ l *Loop }

var _ resizes.Node = resizing{}

// Fits calls Config.Resize. It preempts no more pods than are needed beside those that end already.
func (r resizing) Fits(p, allocated *v1.Pod) admit.ResizeResult {
	others := r.l.admitted(p.UID)
	result := r.l.cfg.Resize(p, allocated, others)
	if len(result.Preempt) > 0 {
		if rest := r.l.staying(others); len(rest) < len(others) {
			result.Preempt = r.l.cfg.Resize(p, allocated, rest).Preempt
		}
	}
	return result
}

// MakeRoom preempts the victims.
func (r resizing) MakeRoom(victims []*v1.Pod, resource string) { r.l.makeRoom(victims, resource) }

// Look makes the worker look again. It creates none: a pod without a worker has no resize.
func (r resizing) Look(uid types.UID) {
	if w := r.l.Worker(uid); w != nil {
		w.Look("the node decided about its resize again")
	}
}
