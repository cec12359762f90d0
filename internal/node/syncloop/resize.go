package syncloop

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// resize is a resize that a pod asks for: its spec differs from what is allocated to it.
type resize struct {
	pod, allocated *v1.Pod
	since          time.Time
	result         admit.ResizeResult
}

// Resize decides whether the node accepts the resize that a pod asks for; ok is false while the node cannot decide. It judges all
// waiting resizes together and in order, so that a pod that asks just when room is free does not overtake one with priority.
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
	r = mine.result // a copy: another worker may judge the resize again once the locks are released
	if r.OK {
		m.allocated, m.resize = pod.AllocationOf(p), nil
	}
	l.mu.Unlock()
	if r.OK {
		l.holdsChanged()
	}
	return r, true
}

// retryResizes judges the waiting resizes again, because room may be free now. It never waits for IO.
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

// grant judges the waiting resizes in the order of inOrder. A granted resize counts at once as allocated, and its worker picks it
// up in its next turn. Workers whose result has changed look again, except the worker of asks, which is in Resize now. It is
// called with the admission lock held.
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

// inOrder compares two resizes: "resizes are retried by: those that do not increase requests, the pod's priority, its QoS
// class, and how long the resize has been deferred".
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
