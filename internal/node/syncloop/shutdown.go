package syncloop

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
)

// Known reports whether every source has answered, so that all desired pods are known.
func (l *Loop) Known() bool { return l.cfg.Pods.Ready() }

// Active returns the pods that a source has and that have not ended.
func (l *Loop) Active() []*v1.Pod {
	pods := l.cfg.Pods.List()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(pods, func(p *v1.Pod) bool {
		m := l.workers[p.UID]
		return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed || m != nil && m.ended
	})
}

// End ends a pod for a reason of the node. If the pod already ends for a reason, that reason stays.
func (l *Loop) End(uid types.UID, why *decide.Stop) {
	l.Look(uid, why.Reason) // creates the worker if there is none yet
	if w := l.Worker(uid); w != nil {
		w.Stop(why)
	}
}

// Ended reports whether nothing of the pod runs or is mounted.
func (l *Loop) Ended(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.workers[uid]
	return m == nil || m.idle
}
