package syncloop

import (
	"cmp"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

// Holder is a pod that holds resources of the node.
type Holder struct {
	Pod *v1.Pod // with the resources that are allocated to it
	// EndsBy is when the grace period of a pod that ends is over; zero: it does not end.
	EndsBy time.Time
}

// Settled reports whether every source has answered, the runtime has been listed, and every pod that was there then has had its first
// turn, in which the worker reads what an earlier agent began. Once true, it stays so.
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

// Eviction says why and how the node ends a pod for its own sake, or because the pod exceeds a limit.
type Eviction struct {
	Signal  string // for the metric
	Message string // message of the pod's status and event
	// Annotations are those of the event; nil: none.
	Annotations map[string]string
	Grace       time.Duration
	// Own: the pod exceeds a limit of its own, so it is not disrupted for the sake of others.
	Own bool
	// Why is the reason for the timeline; "": the message is enough.
	Why string
}

// Evict ends a pod, unless it has ended, or was evicted or preempted already: then it only shortens the grace period, where e has a
// shorter one. It reports whether the pod ends for this reason.
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
	now := time.Now()
	if again {
		m.Stop(&decide.Stop{Reason: admit.ReasonEvicted, Message: e.Message, Grace: new(e.Grace), Since: now})
		return false
	}
	m.Tell(timeline.Record{At: now, Kind: timeline.KindDecision, What: "evict", Why: cmp.Or(e.Why, e.Message)})
	if l.cfg.EvictedEvent != nil {
		l.cfg.EvictedEvent(p, e.Message, e.Annotations)
	} else {
		l.cfg.Recorder.Event(p, "", v1.EventTypeWarning, admit.ReasonEvicted, e.Message)
	}
	l.cfg.Meter.Evicted(e.Signal)
	stop := &decide.Stop{Reason: admit.ReasonEvicted, Message: e.Message, Grace: new(e.Grace), Since: now}
	if !e.Own {
		stop.Disruption = e.Message
	}
	m.Stop(stop)
	return true
}

// removeStep is how often RemoveDead looks whether the containers are gone.
const removeStep = 100 * time.Millisecond

// RemoveDead removes dead containers that are kept for their logs: all attempts but the newest of each container, and all containers of
// pods whose end the API server knows. It waits until they are gone or ctx ends, and returns how many are gone.
func (l *Loop) RemoveDead(ctx context.Context) int {
	dead := l.dead()
	asked := 0
	l.mu.Lock()
	for _, ids := range dead {
		asked += len(ids)
	}
	l.excess = dead
	l.mu.Unlock()
	for uid := range dead {
		l.Look(uid, "the node is short of disk space")
	}
	t := time.NewTicker(removeStep)
	defer t.Stop()
	for {
		left := 0
		for uid, ids := range dead {
			obs, _ := l.cfg.Cache.Get(uid)
			for _, id := range ids {
				if obs.ByID(id) != nil {
					left++
				}
			}
		}
		if left == 0 {
			return asked
		}
		select {
		case <-ctx.Done():
			return asked - left
		case <-t.C:
		}
	}
}

// dead returns the containers that RemoveDead removes, by pod.
func (l *Loop) dead() map[types.UID][]string {
	all := l.cfg.Cache.List()
	out := excessDead(all, 0)
	if out == nil {
		out = map[types.UID][]string{}
	}
	for _, o := range all {
		p, _ := l.cfg.Pods.Get(o.Ref.UID)
		if p == nil || !decide.Told(p) {
			continue
		}
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == pod.StateExited && o.Newest(c.Name) == c {
				out[o.Ref.UID] = append(out[o.Ref.UID], c.ID)
			}
		}
	}
	return out
}
