package syncloop

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// Admit decides whether the node takes a pod that it has never run. A critical pod may have to wait until the pods that it
// preempts have ended.
func (l *Loop) Admit(p *v1.Pod) (refused *decide.Stop, wait bool) {
	l.refresh()
	l.admission.Lock()
	defer l.admission.Unlock()
	if l.cfg.NodeKnown != nil && !pod.IsStatic(p) && !l.cfg.NodeKnown() {
		return nil, true // wait for the Node object, which a static pod does not need
	}
	others, unread := l.holders(p.UID)
	if unread {
		l.askLater(p.UID)
		return nil, true
	}
	newer := pod.IsStatic(p) || l.newerNode(p.UID) // call newerNode before Admit, because the Node may be read while Admit runs
	r := l.cfg.Admit(p, others)
	if r.ByNode() && !newer {
		l.askForNode(p.UID)
		return nil, true
	}
	if !r.OK && len(r.Preempt) > 0 {
		victims := r.Preempt
		if rest := l.staying(others); len(rest) < len(others) {
			victims = l.cfg.Admit(p, rest).Preempt
		}
		l.preempt(p, victims, strings.TrimPrefix(r.Reason, "OutOf"))
		return nil, true
	}
	if !r.OK && r.Passing && pod.IsStatic(p) {
		return nil, true
	}
	if !r.OK {
		l.cfg.Recorder.Event(p, "", v1.EventTypeWarning, r.Reason, r.Message)
		l.cfg.Meter.Rejected(r.Reason)
		return &decide.Stop{Reason: r.Reason, Message: r.Message, Detail: r.Detail, Rejected: true, Since: time.Now()}, false
	}
	l.mu.Lock()
	if m := l.workers[p.UID]; m != nil {
		m.admitted, m.known, m.allocated = true, true, pod.AllocationOf(p)
	}
	l.mu.Unlock()
	l.holdsChanged()
	return nil, false
}

// newerNode reports whether the Node has been read since admission first failed because of the Node. A refusal is final, and the
// scheduler may have seen a newer Node than this agent, so the agent reads the Node again before it refuses the pod.
func (l *Loop) newerNode(uid types.UID) bool {
	if l.cfg.NodeSince == nil {
		return true
	}
	l.mu.Lock()
	m := l.workers[uid]
	since := (*time.Time)(nil)
	if m != nil {
		since = m.refused
	}
	l.mu.Unlock()
	return m == nil || since != nil && l.cfg.NodeSince(*since)
}

// askForNode starts to read the Node again. The pod waits until the API server has answered.
func (l *Loop) askForNode(uid types.UID) {
	l.mu.Lock()
	m := l.workers[uid]
	if m == nil {
		l.mu.Unlock()
		return
	}
	if m.refused == nil {
		m.refused = new(time.Now())
	}
	since := *m.refused
	l.mu.Unlock()
	l.cfg.NodeSince(since)
}

// preempt ends pods to make room for a critical pod, which waits until they, and those that end already, have ended.
func (l *Loop) preempt(p *v1.Pod, victims []*v1.Pod, resource string) {
	l.mu.Lock()
	if me := l.workers[p.UID]; me != nil {
		me.waits = true
	}
	l.mu.Unlock()
	l.makeRoom(victims, resource)
}

// staying returns the pods without those that the node ends already, for example to make room. When the node chooses pods to preempt, these
// count as gone. Otherwise it would choose more pods than it needs: when the first of several victims has ended while
// another takes its grace period, a third pod may be a better choice for the rest.
func (l *Loop) staying(pods []*v1.Pod) []*v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool {
		m := l.workers[p.UID]
		return m != nil && (m.evicted || m.stops)
	})
}

// makeRoom ends the victims to make room for another pod, because resource is short. It ends no pod a second time.
func (l *Loop) makeRoom(victims []*v1.Pod, resource string) {
	for _, v := range victims {
		l.Look(v.UID, "it has to make room for another pod") // creates the worker if there is none yet
	}
	l.mu.Lock()
	ending := map[*v1.Pod]*podworker.Worker{}
	for _, v := range victims {
		if m := l.workers[v.UID]; m != nil && !m.evicted {
			m.evicted = true
			ending[v] = m.Worker
		}
	}
	l.mu.Unlock()
	for v, w := range ending {
		l.cfg.Meter.Preempted(resource)
		l.cfg.Recorder.Event(v, "", v1.EventTypeWarning, admit.ReasonPreempting, admit.MessagePreempting)
		w.Stop(&decide.Stop{Reason: admit.ReasonPreempting, Message: admit.MessagePreempting, Disruption: admit.DisruptionPreempting, Since: time.Now()})
	}
}

// holdsChanged makes the loop call Config.Holds, because the set of pods that hold resources of the node has changed.
func (l *Loop) holdsChanged() {
	if l.cfg.Holds != nil {
		l.holding.ask()
	}
}

// callHolds calls Config.Holds. Loop.holding runs callHolds in a goroutine of its own, because Holds may be slow.
func (l *Loop) callHolds() { l.cfg.Holds(l.worker.Context, l.admitted("")) }

// admitted returns the pods that hold resources of the node, except one: pods that this agent admitted, and pods whose status has a start
// time because an earlier agent admitted them. Each has the resources that are allocated to it, or that a resize has granted it since.
func (l *Loop) admitted(except types.UID) []*v1.Pod {
	pods, _ := l.holders(except)
	return pods
}

// holders returns the same pods as admitted. unread is true if the allocated resources of one of these pods are not known yet, because its
// checkpoint has not been read.
func (l *Loop) holders(except types.UID) (pods []*v1.Pod, unread bool) {
	pods = l.cfg.Pods.List()
	l.mu.Lock()
	defer l.mu.Unlock()
	pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool {
		if p.UID == except || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			return true
		}
		m := l.workers[p.UID]
		if m != nil && m.ended {
			return true
		}
		return !(m != nil && m.admitted) && p.Status.StartTime == nil
	})
	for i, p := range pods {
		m := l.workers[p.UID]
		unread = unread || (m == nil || m.awaited()) && crispec.QOS(p) != v1.PodQOSBestEffort
		if granted := l.resizes.Granted(p.UID); granted != nil {
			pods[i] = granted
		} else if m != nil {
			pods[i] = m.allocated.Apply(p)
		}
	}
	return pods, unread
}

// readWithin is how long admission waits for the checkpoint of a pod. After that, admission uses the resources in the spec of that pod,
// because a disk that hangs for one pod must not block the admission of others.
const readWithin = 10 * time.Second

// awaited reports whether admission should wait for the checkpoint of the pod. It is called with the lock held.
func (m *member) awaited() bool { return !m.known && m.made != nil && time.Since(*m.made) < readWithin }

// Loaded stores the resources that an earlier agent allocated to a pod. The workers read their checkpoints concurrently and
// without a lock. Pods that need admission or a resize wait until all checkpoints have been read.
func (l *Loop) Loaded(uid types.UID, allocated *pod.Allocation) {
	var waiting []*member
	l.mu.Lock()
	if m := l.workers[uid]; m != nil && !m.known {
		m.known, m.allocated = true, allocated
		l.reading--
	}
	if l.reading == 0 {
		for _, m := range l.workers {
			if m.asks {
				m.asks = false
				waiting = append(waiting, m)
			}
		}
	}
	l.mu.Unlock()
	for _, m := range waiting {
		m.Look("every checkpoint has been read")
	}
}

// askLater makes the pod's worker look again when all checkpoints have been read. If that takes long, the worker asks again by
// itself.
func (l *Loop) askLater(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.workers[uid]; m != nil {
		m.asks = true
	}
}

// refresh reads the facts that admission uses. It is called with no lock held.
func (l *Loop) refresh() {
	if l.cfg.Refresh != nil {
		l.cfg.Refresh(l.worker.Context)
	}
}
