package volume

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// tries remembers when the first try to set up a volume began, for each volume whose set-up has failed and not succeeded since. An agent
// that starts again counts from its own first try. The zero value is ready.
type tries struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]time.Time // by pod and volume name; only pods with such volumes have an entry
}

// failed remembers the beginning of a try that failed, unless an earlier try is remembered.
func (t *tries) failed(uid types.UID, volume string, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods = map[types.UID]map[string]time.Time{}
	}
	if t.pods[uid] == nil {
		t.pods[uid] = map[string]time.Time{}
	}
	if _, earlier := t.pods[uid][volume]; !earlier {
		t.pods[uid][volume] = began
	}
}

// succeeded returns when the first try began: the one that is remembered, which it drops, or the one that has just succeeded.
func (t *tries) succeeded(uid types.UID, volume string, began time.Time) (first time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, earlier := t.pods[uid][volume]
	if !earlier {
		return began
	}
	if delete(t.pods[uid], volume); len(t.pods[uid]) == 0 {
		delete(t.pods, uid)
	}
	return first
}

func (t *tries) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}
