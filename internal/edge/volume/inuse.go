package volume

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// inUse keeps the result of InUse until a record changes. The zero value is ready.
type inUse struct {
	mu    sync.Mutex
	turn  uint64 // number of changes of records and of the Node so far
	known bool   // names holds the result of InUse
	names []v1.UniqueVolumeName
	// guessed: names depends on the Node, because the name of a disk is guessed. awaits: InUse has failed, because it waits for the Node.
	guessed, awaits bool
	// free has the drivers whose volumes are not attached any more, whatever the records of the volumes say: see AttachRequired.
	free map[string]bool
	// reported has an entry for each volume with a record, or whose record is about to be written. The entry is true if the last call of Reported listed the volume; calls before
	// there was a record do not count. The entry is deleted with the record: a Node status that lists the volume because of an earlier use
	// does not count either, because a status without the volume may replace it at any moment.
	reported map[v1.UniqueVolumeName]bool
}

// maxInUse bounds the names of the volumes that are in use, in bytes. They are in the status of the Node, which could not be written if it were longer than the
// API server allows (about 1.5 MB). The authors of pods and persistent volumes choose the names.
const maxInUse = 512 << 10

// admit is called before the record of a volume is written. It returns an error if the names of all volumes in use would have more than maxInUse bytes.
// fresh means that the name was not counted before: if the record cannot be written, the caller calls withdraw.
func (u *inUse) admit(name v1.UniqueVolumeName) (fresh bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.reported[name]; known || slices.Contains(u.names, name) {
		return false, nil
	}
	size := len(name)
	for other := range u.reported {
		size += len(other)
	}
	for _, other := range u.names {
		if _, counted := u.reported[other]; !counted {
			size += len(other)
		}
	}
	if size > maxInUse {
		return false, fmt.Errorf("the names of the volumes that are attached to this node would have more than %d bytes: the volume waits until other volumes are gone", maxInUse)
	}
	if u.reported == nil {
		u.reported = map[v1.UniqueVolumeName]bool{}
	}
	u.reported[name] = false // with the lock held, so that of many volumes at a time no more are admitted than fit
	return true, nil
}

// withdraw undoes admit.
func (u *inUse) withdraw(name v1.UniqueVolumeName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.reported, name)
}

// isReported reports whether the Node's status in the API lists a volume as in use. The volume must have a record.
func (u *inUse) isReported(name v1.UniqueVolumeName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, asked := u.reported[name]; !asked { // deleted when another pod stopped using the volume
		u.reported[name] = false
	}
	return u.reported[name]
}

// Reported records that the Node's status in the API lists exactly these volumes as in use. It must be called after each write of the
// status, and also if the API server has this list already, before the next call of InUse. It wakes the set-ups that wait until their
// volume is listed.
func (v *Volumes) Reported(names []v1.UniqueVolumeName) {
	v.using.mu.Lock()
	news := false
	for name, before := range v.using.reported {
		v.using.reported[name] = slices.Contains(names, name)
		news = news || v.using.reported[name] && !before
	}
	v.using.mu.Unlock()
	if news {
		v.nodeChanged.tell()
	}
}

// AttachRequired tells whether the volumes of a CSI driver have to be attached to nodes, according to its CSIDriver object. Without this call, what
// the object said when a volume was set up applies. If a driver needs no attachment any more, its volumes are not reported as in use, so that the
// attach-detach controller can delete their VolumeAttachments while pods use them.
func (v *Volumes) AttachRequired(driver string, required bool) {
	v.using.mu.Lock()
	if v.using.free[driver] == !required {
		v.using.mu.Unlock()
		return
	}
	if v.using.free == nil {
		v.using.free = map[string]bool{}
	}
	if v.using.free[driver] = true; required {
		delete(v.using.free, driver)
	}
	v.using.turn++
	v.using.known = false
	v.using.mu.Unlock()
	v.cfg.InUseChanged()
}

// InUse lists the volumes that must not be detached from this node: the attached volumes that are mounted for a pod, whose set-up has
// begun, or that are still staged. It reads the disk after each change. If the disk cannot be read, ok is false. It is also false if the right name of a
// disk that an earlier agent has connected may be in the Node, which the API server has not sent yet.
func (v *Volumes) InUse() (names []v1.UniqueVolumeName, ok bool) {
	// If a record changes while the disk is read, what was read may lack a volume that one pod has left and another one has taken. If the Node changes,
	// it may lack the name of a disk.
	for range inUseReads {
		v.using.mu.Lock()
		known, names, turn, free := v.using.known, v.using.names, v.using.turn, maps.Clone(v.using.free)
		v.using.mu.Unlock()
		if known {
			return names, true
		}
		names, guessed, err := v.readInUse(free)
		v.using.mu.Lock()
		same := v.using.turn == turn
		if v.using.awaits = errors.Is(err, errNodeUnknown); same && err == nil {
			v.using.known, v.using.names, v.using.guessed = true, names, guessed
		}
		v.using.mu.Unlock()
		switch {
		case errors.Is(err, errNodeUnknown) && !same: // the Node may have come meanwhile
		case err != nil:
			v.cfg.Log.Warn("it is not known which volumes are in use", "err", err)
			return nil, false
		case same:
			return names, true
		}
	}
	return nil, false // Config.InUseChanged is called after the next change, so the caller asks again
}

// inUseReads is how often InUse reads the disk at most.
const inUseReads = 8

// nodeOfNames must be called after each change of the Node, because names that are guessed depend on it.
func (v *Volumes) nodeOfNames() {
	v.using.mu.Lock()
	v.using.turn++
	if v.using.guessed {
		v.using.known = false
	}
	awaits := v.using.awaits
	v.using.awaits = false
	v.using.mu.Unlock()
	if awaits {
		v.cfg.InUseChanged()
	}
}

// readInUse reads from the disk which volumes are in use, without those of the drivers in free. guessed means that names of disks were guessed, with what
// the Node says. The error is errNodeUnknown if there are such disks, and the API server has not sent the Node yet.
func (v *Volumes) readInUse(free map[string]bool) (names []v1.UniqueVolumeName, guessed bool, err error) {
	pods, err := v.Orphans(func(types.UID) bool { return false })
	if err != nil {
		return nil, false, err
	}
	var all []*bound
	for _, uid := range pods {
		csi, errCSI := v.csiOf(uid)
		disks, errSAN := v.sanOf(uid)
		if err := errors.Join(errCSI, errSAN); err != nil {
			return nil, false, fmt.Errorf("volumes of pod %s: %w", uid, err)
		}
		all = slices.Concat(all, csi, disks)
	}
	staged, err := v.staged() // last: a volume is in stagings before the record of its last pod is removed
	if err != nil {
		return nil, false, err
	}
	var node *v1.Node
	for _, b := range append(all, staged...) {
		if !b.Attach || free[b.Driver] {
			continue
		}
		if b.Guessed && node == nil {
			node = v.cfg.Claims.Node()
		}
		of, err := b.names(node)
		if err != nil {
			return nil, false, err
		}
		for _, name := range of {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, node != nil, nil
}

// usesChanged must be called after the record of a volume has changed. The next call of InUse then reads the disk again. gone means
// that a pod does not use the volume any more.
func (v *Volumes) usesChanged(b *bound, gone bool) {
	v.using.mu.Lock()
	v.using.turn++
	if v.using.reported == nil {
		v.using.reported = map[v1.UniqueVolumeName]bool{}
	}
	name := b.unique()
	if _, known := v.using.reported[name]; gone {
		delete(v.using.reported, name)
	} else if !known {
		v.using.reported[name] = false // the next call of Reported sets it to true
	}
	v.using.known = false
	v.using.mu.Unlock()
	v.cfg.InUseChanged()
}
