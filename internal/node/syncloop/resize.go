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

// resize is a resize that a pod asks for: the resources in its spec differ from the allocated ones.
type resize struct {
	pod, allocated *v1.Pod
	since          time.Time
	result         admit.ResizeResult
	before         string // the reason of the newest refusal of this spec; it stays when the worker asks again; "": none
}

// Resize decides whether the node accepts the resize that a pod asks for; ok is false while the node cannot decide. It decides
// about all waiting resizes together and in order, so that a pod that happens to ask when resources become free does not overtake
// one that comes before it.
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
	l.mu.Lock()
	m := l.workers[p.UID]
	if m == nil {
		l.mu.Unlock()
		return r, false
	}
	if allocated.Covers(p) {
		m.resize = nil
		l.mu.Unlock()
		l.grant("", triggerResized)
		return admit.ResizeResult{OK: true}, true
	}
	since, before := time.Now(), ""
	granted := false
	if r := m.resize; r != nil {
		since = r.since
		if r.pod.Generation == p.Generation {
			before = r.before
		}
		granted = r.result.OK && pod.AllocationOf(r.pod).Covers(p)
	}
	if !granted {
		m.resize = &resize{pod: p, allocated: allocated.Apply(p), since: since, before: before}
	}
	mine := m.resize
	l.mu.Unlock()
	if !granted {
		l.grant(p.UID, triggerUpdated)
	}
	l.mu.Lock()
	r = mine.result // a copy, because another worker may change the result when the locks are released
	if r.OK {
		m.allocated, m.resize = pod.AllocationOf(p), nil
	}
	l.mu.Unlock()
	if r.OK {
		l.holdsChanged()
	}
	return r, true
}

// retryResizes decides about the waiting resizes again, because resources may be free now. It never waits for IO.
func (l *Loop) retryResizes(trigger string) {
	l.mu.Lock()
	any := false
	for _, m := range l.workers {
		any = any || m.resize != nil
	}
	l.mu.Unlock()
	if any {
		l.admission.Lock()
		defer l.admission.Unlock()
		l.grant("", trigger)
	}
}

// grant decides about the waiting resizes in the order of inOrder. The resources of a granted resize are allocated at once, and the pod's
// worker applies them in its next turn. Workers whose result has changed look again, except that of the pod asks, which is calling Resize
// now. trigger is the cause of the new decision, for the metrics. The caller holds the admission lock.
func (l *Loop) grant(asks types.UID, trigger string) {
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
		before := r.before
		r.result = admit.ResizeResult{OK: result.OK, Reason: result.Reason, Detail: result.Detail, Message: result.Message}
		r.before = result.Reason
		l.mu.Unlock()
		switch {
		case result.OK && before == v1.PodReasonDeferred:
			l.cfg.Resizes.ResizeAccepted(trigger)
		case result.Reason == v1.PodReasonInfeasible && before != v1.PodReasonInfeasible:
			l.cfg.Resizes.ResizeInfeasible(result.Detail)
		}
		l.makeRoom(result.Preempt, result.Detail)
		if changed && r.pod.UID != asks {
			m.Look("the node decided about its resize again")
		}
	}
}

// inOrder compares two resizes; the smaller one is decided first. The order is: resizes that do not increase requests, then the pod's
// priority, then its QoS class (Guaranteed first), then how long the resize has been deferred.
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
