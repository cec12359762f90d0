package volume

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

// inUse keeps the result of InUse until a record changes. The zero value is ready.
type inUse struct {
	mu    sync.Mutex
	turn  uint64 // counts the changes of records
	known bool   // names is the result
	names []v1.UniqueVolumeName
}

// InUse lists the volumes that must not be detached from this node: the attached volumes that are mounted for a pod, or whose set-up
// has begun. It reads the disk after each change. If the disk cannot be read, ok is false.
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
		all, err := v.csiOf(uid)
		if err != nil {
			v.cfg.Log.Warn("it is not known which volumes are in use", "pod", uid, "err", err)
			return nil, false
		}
		for _, b := range all {
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

// usesChanged must be called after a record has changed. The next InUse reads the disk again.
func (v *Volumes) usesChanged() {
	v.using.mu.Lock()
	v.using.turn++
	v.using.known = false
	v.using.mu.Unlock()
	v.cfg.InUseChanged()
}
