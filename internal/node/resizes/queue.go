package resizes

import (
	"cmp"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Node is what the Queue needs of the node. It is called only during Ask and Again, one call at a time. No call waits for IO.
type Node interface {
	// Fits decides whether the node has the resources that a pod asks for beyond those allocated to it, beside the other pods that it has
	// admitted.
	Fits(p, allocated *v1.Pod) admit.ResizeResult
	// MakeRoom ends the victims, because a critical pod has to grow and resource is short. It ends no pod a second time.
	MakeRoom(victims []*v1.Pod, resource string)
	// Look makes the worker of a pod look again, because the result of the pod's resize has changed.
	Look(uid types.UID)
}

// Meter counts the decisions about resizes. Calls may be concurrent and must not block.
type Meter interface {
	// ResizeInfeasible is called once for each spec that the node can never accept; why is admit.ResizeResult.Detail.
	ResizeInfeasible(why string)
	// ResizeAccepted is called when a deferred resize is accepted, with the cause for which the node decided about it again.
	ResizeAccepted(trigger string)
}

// These are the causes for which the node decides about waiting resizes again. Upstream's kubelet uses the same names.
const (
	TriggerUpdated  = "pod_updated"
	TriggerResized  = "pod_resized"
	TriggerEnded    = "pod_terminated"
	TriggerPeriodic = "periodic_retry"
)

// Queue holds the resizes of a node. Create it with New.
type Queue struct {
	node  Node
	meter Meter

	mu sync.Mutex
	of map[types.UID]*resize // by pod; nil: no pod asks for a resize
}

// resize is a resize that a pod asks for.
type resize struct {
	pod, allocated *v1.Pod
	since          time.Time
	result         admit.ResizeResult
	before         string // the reason of the newest refusal of this spec; it stays when the worker asks again; "": none
}

// New returns an empty Queue. A nil meter counts nothing.
func New(node Node, meter Meter) *Queue {
	if meter == nil {
		meter = noMeter{}
	}
	return &Queue{node: node, meter: meter}
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) ResizeInfeasible(string) {}
func (noMeter) ResizeAccepted(string)   {}

// Ask adds the resize that a pod asks for, decides about it and about all others that wait, and returns the result. If an earlier decision
// has granted what the pod asks for, Ask returns that decision.
func (q *Queue) Ask(p *v1.Pod, allocated *pod.Allocation) admit.ResizeResult {
	q.mu.Lock()
	next := &resize{pod: p, allocated: allocated.Apply(p), since: time.Now()}
	if r := q.of[p.UID]; r != nil {
		if r.result.OK && pod.AllocationOf(r.pod).Covers(p) {
			defer q.mu.Unlock()
			return r.result
		}
		next.since = r.since
		if r.pod.Generation == p.Generation {
			next.before = r.before
		}
	}
	if q.of == nil {
		q.of = map[types.UID]*resize{}
	}
	q.of[p.UID] = next
	q.mu.Unlock()
	q.decide(p.UID, TriggerUpdated)
	q.mu.Lock()
	defer q.mu.Unlock()
	return next.result // a copy, because a later decision changes the result
}

// Again decides about the waiting resizes again, because resources may be free now. trigger is the cause, for the metrics.
func (q *Queue) Again(trigger string) { q.decide("", trigger) }

// decide decides about the waiting resizes in the order of inOrder. Workers whose result has changed look again, except that of the pod
// asks, which is asking now.
func (q *Queue) decide(asks types.UID, trigger string) {
	q.mu.Lock()
	var waiting []*resize
	for _, r := range q.of {
		if !r.result.OK {
			waiting = append(waiting, r)
		}
	}
	q.mu.Unlock()
	slices.SortFunc(waiting, inOrder)
	for _, r := range waiting {
		result := q.node.Fits(r.pod, r.allocated)
		q.mu.Lock()
		changed := r.result.OK != result.OK || r.result.Reason != result.Reason || r.result.Message != result.Message
		before := r.before
		r.result = admit.ResizeResult{OK: result.OK, Reason: result.Reason, Detail: result.Detail, Message: result.Message}
		r.before = result.Reason
		q.mu.Unlock()
		switch {
		case result.OK && before == v1.PodReasonDeferred:
			q.meter.ResizeAccepted(trigger)
		case result.Reason == v1.PodReasonInfeasible && before != v1.PodReasonInfeasible:
			q.meter.ResizeInfeasible(result.Detail)
		}
		q.node.MakeRoom(result.Preempt, result.Detail)
		if changed && r.pod.UID != asks {
			q.node.Look(r.pod.UID)
		}
	}
}

// Drop ends the resize of a pod: the pod's worker has taken the resources, the spec no longer asks for them, or the pod ends.
func (q *Queue) Drop(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if delete(q.of, uid); len(q.of) == 0 {
		q.of = nil
	}
}

// Waiting reports whether a resize waits that the node has not accepted.
func (q *Queue) Waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.of {
		if !r.result.OK {
			return true
		}
	}
	return false
}

// Granted returns the pod with the resources that a decision has granted it and that its worker has not taken yet; nil: there are none.
func (q *Queue) Granted(uid types.UID) *v1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.of[uid]; r != nil && r.result.OK {
		return r.pod
	}
	return nil
}

// Pending returns the reason why the resize of a pod waits (Deferred or Infeasible); "": no resize waits.
func (q *Queue) Pending(uid types.UID) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.of[uid]; r != nil && !r.result.OK {
		return r.result.Reason
	}
	return ""
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
