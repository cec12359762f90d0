package syncloop

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/admit"
	"github.com/wherry-node/wherry/internal/crispec"
	"github.com/wherry-node/wherry/internal/pod"
)

// resize is what a pod asks for beyond what it has.
type resize struct {
	pod, allocated *v1.Pod
	since          time.Time
	result         admit.ResizeResult
}

// Resize decides whether the node accepts what a pod asks for now: not ok while the node cannot say. All resizes that wait
// are judged together, in order, so that whoever asks just when room has come does not take it from one that goes before.
func (l *Loop) Resize(p *v1.Pod, allocated *pod.Allocation) (r admit.ResizeResult, ok bool) {
	if l.cfg.Resize == nil {
		return admit.ResizeResult{OK: true}, true
	}
	l.refresh()
	l.admission.Lock()
	defer l.admission.Unlock()
	if l.cfg.NodeKnown != nil && !l.cfg.NodeKnown() || !l.cfg.Pods.Ready() {
		return r, false
	}
	if _, unread := l.holders(p.UID); unread {
		return r, false
	}
	l.mu.Lock()
	m := l.workers[p.UID]
	if m == nil {
		l.mu.Unlock()
		return r, false
	}
	if allocated.Covers(p) {
		m.resize = nil
		l.mu.Unlock()
		l.grant("")
		return admit.ResizeResult{OK: true}, true
	}
	since := time.Now()
	granted := false
	if r := m.resize; r != nil {
		since = r.since
		granted = r.result.OK && pod.AllocationOf(r.pod).Covers(p)
	}
	if !granted {
		m.resize = &resize{pod: p, allocated: allocated.Apply(p), since: since}
	}
	mine := m.resize
	l.mu.Unlock()
	if !granted {
		l.grant(p.UID)
	}
	l.mu.Lock()
	r = mine.result // a copy: another worker's turn may judge it again as soon as the locks are free
	if r.OK {
		m.allocated, m.resize = pod.AllocationOf(p), nil
	}
	l.mu.Unlock()
	if r.OK {
		l.holdsChanged()
	}
	return r, true
}

// retryResizes looks again at the resizes that wait, since room may have come. It never waits for IO.
func (l *Loop) retryResizes() {
	l.mu.Lock()
	any := false
	for _, m := range l.workers {
		any = any || m.resize != nil
	}
	l.mu.Unlock()
	if any {
		l.admission.Lock()
		defer l.admission.Unlock()
		l.grant("")
	}
}

// grant judges the resizes that wait, first those that ask for no more, then by priority, class and time. A resize that
// is granted counts from then on; its worker takes it in its next turn. Called with the admission lock held; the pod that
// asks is not told.
func (l *Loop) grant(asks types.UID) {
	type waiter struct {
		*member
		r *resize
	}
	l.mu.Lock()
	var waiting []waiter
	for _, m := range l.workers {
		if m.resize != nil && !m.resize.result.OK {
			waiting = append(waiting, waiter{m, m.resize})
		}
	}
	l.mu.Unlock()
	slices.SortFunc(waiting, func(a, b waiter) int { return inOrder(a.r, b.r) })
	for _, m := range waiting {
		r := m.r
		result := l.cfg.Resize(r.pod, r.allocated, l.admitted(r.pod.UID))
		l.mu.Lock()
		changed := r.result.OK != result.OK || r.result.Reason != result.Reason || r.result.Message != result.Message
		r.result = admit.ResizeResult{OK: result.OK, Reason: result.Reason, Message: result.Message}
		l.mu.Unlock()
		l.makeRoom(result.Preempt)
		if changed && r.pod.UID != asks {
			m.Look("what it asks for was judged again")
		}
	}
}

// inOrder: "resizes are retried by: those that do not increase requests, the pod's priority, its QoS class, and how
// long the resize has been deferred".
func inOrder(a, b *resize) int {
	rank := func(r *resize) (grows, class int, priority int32) {
		if admit.Grows(r.pod, r.allocated) {
			grows = 1
		}
		if crispec.QOS(r.pod) != v1.PodQOSGuaranteed {
			class = 1
		}
		if r.pod.Spec.Priority != nil {
			priority = *r.pod.Spec.Priority
		}
		return grows, class, priority
	}
	ag, ac, ap := rank(a)
	bg, bc, bp := rank(b)
	return cmp.Or(cmp.Compare(ag, bg), cmp.Compare(bp, ap), cmp.Compare(ac, bc), a.since.Compare(b.since))
}
