package volume

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

// inUse keeps the answer of InUse until a record changes. The zero value is ready.
type inUse struct {
	mu    sync.Mutex
	turn  uint64 // grows with each change
	known bool
	names []v1.UniqueVolumeName
}

// InUse lists the volumes that must not be detached from this node: all attached ones that a pod has, or is about to have, mounted.
// It is read from the disk after each change. If the disk cannot be read, ok is false.
func (v *Volumes) InUse() (names []v1.UniqueVolumeName, ok bool) {
	v.using.mu.Lock()
	known, names, turn := v.using.known, v.using.names, v.using.turn
	v.using.mu.Unlock()
	if known {
		return names, true
	}
	pods, err := v.Orphans(func(types.UID) bool { return false })
	if err != nil {
		v.cfg.Log.Warn("it is not known which volumes are in use", "err", err)
		return nil, false
	}
	names = nil
	for _, uid := range pods {
		for _, b := range v.csiOf(uid) {
			if name := csispec.UniqueName(b.Driver, b.Handle); b.Attach && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	v.using.mu.Lock()
	defer v.using.mu.Unlock()
	if v.using.turn == turn {
		v.using.known, v.using.names = true, names
	}
	return names, true
}

// usesChanged forgets the answer of InUse, because a record has changed, and tells that there is a new one.
func (v *Volumes) usesChanged() {
	v.using.mu.Lock()
	v.using.turn++
	v.using.known = false
	v.using.mu.Unlock()
	v.cfg.InUseChanged()
}
