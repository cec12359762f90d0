package podworker

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
)

// accept returns the pod with the resources that the node has accepted: its own where it asks for no others, else those
// of before until the node says yes. The answer is in the checkpoint before anything is done about it, so that an agent
// that comes after this one goes on from it, and not from the spec.
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
	case m.Allocated == nil: // by an agent that did not note it, or its checkpoint is lost
		m.Allocated = pod.AllocationTold(p)
		w.checkpoint()
	case p.DeletionTimestamp != nil || m.Stop != nil || m.Finished || !m.StopBegan.IsZero():
	case m.Allocated.Covers(p):
		if m.Resize.Pending != "" { // what could not be had is not asked for any more
			w.cfg.Host.Resize(p, m.Allocated)
			m.Resize.Pending, m.Resize.PendingMessage = "", ""
			w.checkpoint()
		}
	default:
		w.ask(p, now)
	}
	if a := w.accepted; p != w.wanted || a == nil || !m.Allocated.Covers(a) {
		w.wanted, w.accepted = p, m.Allocated.Apply(p)
	}
	if !w.work.askAt.IsZero() {
		w.wanted = nil // not settled
	}
	return w.accepted
}

// ask asks the node for what the spec wants beyond what is allocated.
func (w *Worker) ask(p *v1.Pod, now time.Time) {
	m := w.memory
	r, ok := w.cfg.Host.Resize(p, m.Allocated)
	switch {
	case !ok:
		w.work.askAt = now.Add(askAgain)
		return
	case r.OK:
		m.Allocated = pod.AllocationOf(p)
		m.Resize = decide.Resize{InProgress: true, Generation: p.Generation, Since: now}
		w.owed = w.owed || tellsOfPod(p)
	case m.Resize.Pending == r.Reason && m.Resize.PendingMessage == r.Message && m.Resize.PendingGeneration == p.Generation:
		return
	default:
		if m.Resize.Pending != r.Reason {
			m.Resize.PendingSince = now
		}
		m.Resize.Pending, m.Resize.PendingMessage, m.Resize.PendingGeneration = r.Reason, r.Message, p.Generation
	}
	w.checkpoint()
}
