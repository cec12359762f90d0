package syncloop

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

// Holder is a pod that holds resources of the node.
type Holder struct {
	Pod *v1.Pod // the pod, with the resources that are allocated to it
	// EndsBy is when the grace period of a pod that ends is over; zero: the pod does not end.
	EndsBy time.Time
}

// Settled reports whether every source has answered, the runtime has been listed, and the worker of every pod in that listing has
// had its first turn, in which it reads the checkpoint. After Settled has returned true once, it always returns true.
func (l *Loop) Settled() bool {
	known := l.cfg.Pods.Ready() && l.cfg.Cache.Synced()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || !known || !l.met {
		return l.settled
	}
	for _, m := range l.workers {
		if m.made != nil && time.Since(*m.made) < readWithin {
			return false
		}
	}
	l.settled = true
	return true
}

// Holders returns the pods that hold resources of the node.
func (l *Loop) Holders() []Holder {
	pods := l.admitted("")
	out := make([]Holder, len(pods))
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range pods {
		out[i].Pod = p
		if m := l.workers[p.UID]; m != nil && m.endsBy != nil {
			out[i].EndsBy = *m.endsBy
		}
	}
	return out
}

// Holds reports whether a pod still has something that runs or is mounted.
func (l *Loop) Holds(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.workers[uid]
	return m != nil && !m.ended
}

// Eviction says why and how the node ends a pod because the node is short of a resource, or because the pod exceeds a limit.
type Eviction struct {
	Signal  string // the eviction signal, for the metric
	Message string // message of the pod's status and event
	// Annotations are added to the event; nil: none.
	Annotations map[string]string
	// Grace is the longest grace period of the pod. AtOnce: the containers are killed without being asked to end.
	Grace  time.Duration
	AtOnce bool
	// Own is set if the pod exceeds a limit of its own. Its status then has no condition DisruptionTarget, because the pod does not end
	// for the sake of other pods.
	Own bool
	// Why is the reason for the timeline; "": the message is enough.
	Why string
}

// Evict ends a pod. If the pod has ended, Evict does nothing; if the pod was evicted or preempted before, Evict only shortens the
// grace period, if e demands that the pod ends sooner. It reports whether the pod ends for this reason.
func (l *Loop) Evict(p *v1.Pod, e Eviction) bool {
	l.mu.Lock()
	m := l.workers[p.UID]
	if m == nil || m.ended {
		l.mu.Unlock()
		return false
	}
	again := m.evicted
	m.evicted = true
	l.mu.Unlock()
	stop := &decide.Stop{Reason: admit.ReasonEvicted, Message: e.Message, Grace: new(e.Grace), AtOnce: e.AtOnce, Since: time.Now()}
	if !e.Own {
		stop.Disruption = e.Message
	}
	defer m.Stop(stop)
	if again {
		return false
	}
	m.Tell(timeline.Record{At: stop.Since, Kind: timeline.KindDecision, What: "evict", Why: cmp.Or(e.Why, e.Message)})
	if l.cfg.EvictedEvent != nil {
		l.cfg.EvictedEvent(p, e.Message, e.Annotations)
	} else {
		l.cfg.Recorder.Event(p, "", v1.EventTypeWarning, admit.ReasonEvicted, e.Message)
	}
	l.cfg.Meter.Evicted(e.Signal)
	return true
}
