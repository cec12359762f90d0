package podworker

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// accept returns the pod with the resources that the node has accepted. If the spec asks for other resources, the pod keeps its
// earlier ones until the node accepts the new ones. The worker writes the answer to the checkpoint before it acts on it, so
// that the next agent continues from the answer and not from the spec.
func (w *Worker) accept(p *v1.Pod, now time.Time) *v1.Pod {
	m := w.memory
	w.work.askAt = time.Time{}
	if p == nil || !m.Admitted {
		w.wanted, w.accepted = nil, nil
		return p
	}
	if p == w.wanted && m.Resize.Pending == "" {
		return w.accepted
	}
	switch {
	case m.Allocated == nil: // an agent of an older version admitted the pod, or the checkpoint is lost
		m.Allocated = pod.AllocationFromStatus(p)
		w.checkpoint()
	case p.DeletionTimestamp != nil || m.Stop != nil || m.Finished || !m.StopBegan.IsZero():
	case m.Allocated.Covers(p):
		if m.Resize.Pending != "" { // the spec no longer asks for the resources that were pending
			w.cfg.Host.Resize(p, m.Allocated)
			m.Resize.Withdraw()
			w.checkpoint()
		}
	default:
		w.ask(p, now)
	}
	if a := w.accepted; p != w.wanted || a == nil || !m.Allocated.Covers(a) {
		w.wanted, w.accepted = p, m.Allocated.Apply(p)
	}
	if !w.work.askAt.IsZero() {
		w.wanted = nil // the next turn asks again
	}
	return w.accepted
}

// ask asks the node for the resources that the spec wants beyond the allocated ones.
func (w *Worker) ask(p *v1.Pod, now time.Time) {
	m := w.memory
	r, ok := w.cfg.Host.Resize(p, m.Allocated)
	switch {
	case !ok:
		w.work.askAt = now.Add(askAgain)
		return
	case r.OK:
		m.Allocated = pod.AllocationOf(p)
		m.Resize.Accept(p.Generation, now)
		w.owed = w.owed || tellsOfPod(p)
	case !m.Resize.Defer(r.Reason, r.Message, p.Generation, now):
		return
	}
	w.checkpoint()
}
