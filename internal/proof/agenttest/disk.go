package agenttest

import (
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
)

// DiskFault says how the disk of the machine fails.
type DiskFault struct {
	// Write and Read are the errors of writing and reading checkpoints; 0: none. ENOSPC is a full disk, EROFS a disk that the kernel has
	// remounted read-only, EIO a broken disk.
	Write, Read syscall.Errno
	// Volumes is the error of creating and removing the directories of pods; 0: none.
	Volumes syscall.Errno
	// Every is n if only every n-th operation fails; 0: all operations fail.
	Every int64
	// Slow is how long each operation takes.
	Slow time.Duration
}

// SetDisk makes the disk fail as f says, for checkpoints and for the volumes of all pods. DiskFault{} is a disk that works.
func (w *World) SetDisk(f DiskFault) {
	w.diskFault.Store(&f)
	w.Witness.diskChanged()
}

// diskChanged records that a fault of the disk has begun or ended.
func (w *Witness) diskChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diskFaultAt = time.Now()
}

// SetDiskFull fills the disk, so that no checkpoint can be written, or empties it again.
func (w *World) SetDiskFull(full bool) {
	f := DiskFault{}
	if full {
		f.Write = syscall.ENOSPC
	}
	w.SetDisk(f)
}

// SetDiskSlow makes each operation of the disk take this long.
func (w *World) SetDiskSlow(by time.Duration) { w.SetDisk(DiskFault{Slow: by}) }

// disk is the simulated disk of the machine, as one agent sees it. Its operations fail as the present DiskFault says.
type disk struct {
	*checkpoint.InMemory
	l *line
}

var _ interface {
	agent.Disk
	agent.VolumeDisk
} = disk{}

// operate simulates an operation of the disk for a pod. It waits for DiskFault.Slow. Then it returns nil, or one of the errors of the
// present DiskFault; the parameter fails selects which.
func (d disk) operate(uid types.UID, fails func(*DiskFault) syscall.Errno) error {
	w := d.l.w
	f := w.diskFault.Load()
	if f == nil || *f == (DiskFault{}) {
		return nil
	}
	if f.Slow > 0 {
		done := w.Witness.diskBegins(d.l.known, uid)
		time.Sleep(f.Slow)
		done()
	}
	err := fails(f)
	if n := w.diskOps.Add(1); err == 0 || f.Every > 0 && n%f.Every != 0 {
		return nil
	}
	return err
}

// Load reads the checkpoint of a pod, unless the simulated disk fails.
func (d disk) Load(uid types.UID) ([]byte, error) {
	if err := d.operate(uid, func(f *DiskFault) syscall.Errno { return f.Read }); err != nil {
		return nil, err
	}
	if m, err := (checkpoint.In{Files: d.InMemory}).Load(uid); err == nil && m != nil {
		d.l.w.Witness.loaded(uid, m.StopBegan)
	}
	return d.InMemory.Load(uid)
}

// Save writes the checkpoint of a pod, unless the simulated disk fails or the agent was killed.
func (d disk) Save(uid types.UID, file []byte) error {
	err := d.operate(uid, func(f *DiskFault) syscall.Errno { return f.Write })
	switch {
	case d.l.isCut():
		return dead()
	case err != nil:
		d.l.w.Witness.notSaved(uid)
		return err
	}
	return d.InMemory.Save(uid, file)
}

// Remove removes the checkpoint of a pod.
func (d disk) Remove(uid types.UID) {
	if bug := d.l.w.cfg.Plant; !d.l.isCut() && (bug == nil || !bug.KeepsCheckpoints) {
		d.InMemory.Remove(uid)
	}
}

// UIDs returns the UIDs of the pods that have a checkpoint.
func (d disk) UIDs() []types.UID {
	if bug := d.l.w.cfg.Plant; bug != nil && bug.KeepsCheckpoints {
		return nil
	}
	return d.InMemory.UIDs()
}

// Volumes is called before the agent creates, empties or removes the directories of a pod's volumes.
func (d disk) Volumes(uid types.UID) error {
	if err := d.operate(uid, func(f *DiskFault) syscall.Errno { return f.Volumes }); err != nil {
		return err
	}
	if d.l.isCut() {
		return dead()
	}
	return nil
}

// diskBegins records that the disk blocks the turn of a pod's worker, until the function done is called. The turn has read its input before
// the wait, so it may decide without facts that the agent learns during the wait.
func (w *Witness) diskBegins(t *learned, uid types.UID) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.begin(uid, time.Time{})
	began := time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.done(uid)
		held := w.held[uid]
		if n := len(held); n > 0 && held[n-1].ended.Equal(began) { // the same turn was blocked until now
			held[n-1].ended = time.Now()
			return
		}
		w.held[uid] = append(held, span{began, time.Now()})
	}
}

// notSaved records that the checkpoint of a pod could not be written.
func (w *Witness) notSaved(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsaved[uid] = true
}

// heldUp reports whether, at the time at, the disk blocked a turn of the pod's worker.
func (w *Witness) heldUp(uid types.UID, at time.Time) bool {
	for _, s := range w.held[uid] {
		if !at.Before(s.began) && !at.After(s.ended) {
			return true
		}
	}
	return false
}
