package volume

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// waits records which pods wait for a driver or for a volume, so that the work on them is tried again as soon as the wait is over. A
// record only saves time: without it, the work is tried again after the pod's back-off. The zero value is ready.
type waits struct {
	mu   sync.Mutex
	pods map[string]map[types.UID]bool // the pods that wait, by the name of the driver or volume
}

// add records that a pod waits.
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

// take returns the pods that wait for a driver or a volume, and drops their records.
func (w *waits) take(what string) (uids []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.pods[what] {
		uids = append(uids, uid)
	}
	delete(w.pods, what)
	return uids
}

// forget drops all records of a pod.
func (w *waits) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, uids := range w.pods {
		if delete(uids, uid); len(uids) == 0 {
			delete(w.pods, what)
		}
	}
}

// wake calls Config.Notify for the pods that wait for a driver or a volume.
func (v *Volumes) wake(what string) {
	for _, uid := range v.waits.take(what) {
		v.cfg.Notify(uid)
	}
}
