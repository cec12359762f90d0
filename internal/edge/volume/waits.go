package volume

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// waits remembers which pods wait for something, so that they are tried again as soon as it happens. It is only a hint: a pod that
// it forgets is tried again after its back-off. The zero value is ready.
type waits struct {
	mu   sync.Mutex
	pods map[string]map[types.UID]bool // by what they wait for
}

// add notes that a pod waits.
func (w *waits) add(what string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods == nil {
		w.pods = map[string]map[types.UID]bool{}
	}
	if w.pods[what] == nil {
		w.pods[what] = map[types.UID]bool{}
	}
	w.pods[what][uid] = true
}

// take returns the pods that wait for something, and forgets them.
func (w *waits) take(what string) (uids []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.pods[what] {
		uids = append(uids, uid)
	}
	delete(w.pods, what)
	return uids
}

// forget drops a pod.
func (w *waits) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, uids := range w.pods {
		if delete(uids, uid); len(uids) == 0 {
			delete(w.pods, what)
		}
	}
}

// wake calls Config.Notify for the pods that wait for something.
func (v *Volumes) wake(what string) {
	for _, uid := range v.waits.take(what) {
		v.cfg.Notify(uid)
	}
}
