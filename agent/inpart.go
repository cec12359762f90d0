package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// purpose is why the node measures the data of a pod on disk. The purposes differ in how much time a measurement may take.
type purpose uint8

const (
	forEviction purpose = 1 << iota // the disk is short, and a pod is chosen for eviction
	forLimits                       // the pod has limits of storage
)

// String says, for the log, what may come of an incomplete measurement.
func (u purpose) String() string {
	if u == forLimits {
		return "the node cannot evict the pod if it is what was not measured that exceeds a limit"
	}
	return "in the choice of a pod to evict it counts with what was found"
}

// partly remembers the pods whose data on disk could be measured in part only, for the log and a metric. It may be used concurrently. A nil
// *partly remembers and logs nothing.
type partly struct {
	log *slog.Logger
	// present reports whether forget will still be called for a pod. It is called with mu held.
	present func(types.UID) bool

	mu   sync.Mutex
	pods map[types.UID]purpose // a set of purposes for each pod
}

// note records the result of a measurement of a pod; a nil err means that it was complete. The log names a pod when its measurements begin
// to be incomplete, and when they are complete again. A measurement that was broken off, because the agent ends, says nothing, and neither does
// one of a pod that has gone meanwhile.
func (m *partly) note(p *v1.Pod, why purpose, err error) {
	if m == nil || errors.Is(err, context.Canceled) {
		return
	}
	m.mu.Lock()
	if !m.present(p.UID) {
		m.mu.Unlock()
		return
	}
	was := m.pods[p.UID]
	now := was &^ why
	if err != nil {
		now = was | why
		if m.pods == nil {
			m.pods = map[types.UID]purpose{}
		}
	}
	if now == 0 {
		delete(m.pods, p.UID)
	} else {
		m.pods[p.UID] = now
	}
	m.mu.Unlock()
	switch name := p.Namespace + "/" + p.Name; {
	case now == was:
	case err != nil:
		m.log.Warn("what a pod has on disk could be measured in part only", "pod", name, "effect", why, "err", err)
	default:
		m.log.Info("what a pod has on disk is measured completely again", "pod", name)
	}
}

// forget forgets a pod that is gone.
func (m *partly) forget(uid types.UID) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}

// count returns the number of pods whose last measurement for any purpose was incomplete.
func (m *partly) count() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(len(m.pods))
}
