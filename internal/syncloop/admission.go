package syncloop

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/admit"
	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/podworker"
)

// Admit decides about a pod that the node has never run. A critical pod may have to wait until others, which are told
// to end, have made room.
func (l *Loop) Admit(p *v1.Pod) (refused *decide.Stop, wait bool) {
	l.admission.Lock()
	defer l.admission.Unlock()
	if l.cfg.NodeKnown != nil && !pod.IsStatic(p) && !l.cfg.NodeKnown() {
		return nil, true // a static pod runs whatever the API has to say of the Node
	}
	r := l.cfg.Admit(p, l.admitted(p.UID))
	if !r.OK && len(r.Preempt) > 0 {
		l.preempt(p, r.Preempt)
		return nil, true
	}
	if !r.OK && (r.Reason == admit.ReasonNodeAffinity || r.Reason == admit.ReasonTaint) && l.awaitsNode(p.UID) {
		return nil, true
	}
	if !r.OK {
		l.cfg.Recorder.Event(p, "", v1.EventTypeWarning, r.Reason, r.Message)
		l.cfg.Meter.Rejected(r.Reason)
		return &decide.Stop{Reason: r.Reason, Message: r.Message, Rejected: true, Since: time.Now()}, false
	}
	l.mu.Lock()
	if m := l.workers[p.UID]; m != nil {
		m.admitted, m.known, m.allocated = true, true, pod.AllocationOf(p)
	}
	l.mu.Unlock()
	l.holdsChanged()
	return nil, false
}

// newerNodeWithin is how long a refused pod waits for a newer Node.
const newerNodeWithin = 10 * time.Second

// awaitsNode reports whether a pod must not be refused yet for labels or taints: the scheduler may have known a newer Node.
func (l *Loop) awaitsNode(uid types.UID) bool {
	if l.cfg.NodeSince == nil {
		return false
	}
	l.mu.Lock()
	m := l.workers[uid]
	if m == nil {
		l.mu.Unlock()
		return false
	}
	if m.refused == nil {
		m.refused = new(time.Now())
	}
	since := *m.refused
	l.mu.Unlock()
	return !l.cfg.NodeSince(since) && time.Since(since) < newerNodeWithin
}

// preempt ends pods to make room for a critical one, which is looked at again when they have.
func (l *Loop) preempt(p *v1.Pod, victims []*v1.Pod) {
	l.mu.Lock()
	if me := l.workers[p.UID]; me != nil {
		me.waits = true
	}
	l.mu.Unlock()
	l.makeRoom(victims)
}

// makeRoom ends pods, each once.
func (l *Loop) makeRoom(victims []*v1.Pod) {
	for _, v := range victims {
		l.Look(v.UID, "has to make room") // makes a worker where there is none yet
	}
	l.mu.Lock()
	told := map[*v1.Pod]*podworker.Worker{}
	for _, v := range victims {
		if m := l.workers[v.UID]; m != nil && !m.told {
			m.told = true
			told[v] = m.Worker
		}
	}
	l.mu.Unlock()
	for v, w := range told {
		l.cfg.Recorder.Event(v, "", v1.EventTypeWarning, admit.ReasonPreempting, admit.MessagePreempting)
		w.Stop(&decide.Stop{Reason: admit.ReasonPreempting, Message: admit.MessagePreempting, Since: time.Now()})
	}
}

// holdsChanged says that the pods which hold a part of the node are others now.
func (l *Loop) holdsChanged() {
	select {
	case l.holds <- struct{}{}:
	default:
	}
}

// admitted are the pods that hold a part of the node: admitted by this agent, or by an earlier one that reported
// a start time.
func (l *Loop) admitted(but types.UID) []*v1.Pod {
	pods := l.cfg.Pods.List()
	l.mu.Lock()
	pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool {
		if p.UID == but || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			return true
		}
		m := l.workers[p.UID]
		if m != nil && m.ended {
			return true
		}
		return !(m != nil && m.admitted) && p.Status.StartTime == nil
	})
	l.mu.Unlock()
	for i := range pods {
		pods[i] = l.allocated(pods[i])
	}
	return pods
}
