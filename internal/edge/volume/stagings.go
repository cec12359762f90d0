package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// A failed attempt to unstage a volume is repeated after unstageAgain, then after twice that time, and so on, up to unstageMost. Upstream's
// kubelet begins with the same time, and waits two seconds longer at most.
const (
	unstageAgain = 500 * time.Millisecond
	unstageMost  = 2 * time.Minute
)

// stagings holds what the pods of a node share and a pod has left: staged CSI volumes, and connected disks of a storage area network. Here "to unstage"
// stands for both. A pod that ends only gives up its own mounts. If no other pod of the node uses a volume, the node unstages it afterwards: a driver or a
// disk server that does not do its part keeps no pod from ending. Until then, the volume is in use (see InUse). An agent finds the volumes that the agent
// before it has left on the disk. The zero value is ready.
type stagings struct {
	mu     sync.Mutex
	found  bool                // the disk was searched for volumes that the agent before this one has left
	byPath map[string]*staging // by the staging path of the volume
	heap   due.Heap[*staging]
	rounds *rounds.Rounds // woken when the time of the next attempt may have changed; nil: Begin was not called yet
}

// staging is a staged volume. It stays in stagings until the volume is unstaged, or until an attempt to unstage it finds that a pod uses it
// again. It is in the heap unless an attempt runs. The mutex of stagings guards it.
type staging struct {
	due.Place
	volume   bound
	attempts int        // failed attempts since a pod has left the volume
	said     string     // the error that was told last
	paths    []diskPath // to a Fibre Channel disk that has to be disconnected: see Volumes.hold
}

// leave makes Begin unstage a volume that a pod has left.
func (s *stagings) leave(path string, b *bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPath == nil {
		s.byPath = map[string]*staging{}
	}
	one := s.byPath[path]
	if one == nil {
		one = &staging{}
		s.byPath[path] = one
	}
	one.volume, one.attempts = *b, 0
	s.heap.Put(one, time.Now())
	s.wake()
}

// hasten makes the next attempt to unstage the volumes of a driver begin at once.
func (s *stagings) hasten(driver string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heap.Hasten(time.Now(), func(one *staging) bool { return one.volume.Driver == driver })
	s.wake()
}

// wake makes Begin check the heap again. It is called with the lock held.
func (s *stagings) wake() {
	if s.rounds != nil {
		s.rounds.Wake()
	}
}

// take removes the volumes that are due from the heap. next is the time until the next volume is due; it is rounds.Never if there is none.
func (s *stagings) take(now time.Time) (ready []*staging, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready, next, more := s.heap.TakeDue(now)
	if !more {
		next = rounds.Never
	}
	return ready, next
}

// of returns a copy of the volume of one.
func (s *stagings) of(one *staging) bound {
	s.mu.Lock()
	defer s.mu.Unlock()
	return one.volume
}

// drop forgets a volume: it is not staged any more, or a pod uses it again.
func (s *stagings) drop(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.byPath[path]; one != nil {
		s.heap.Remove(one)
		delete(s.byPath, path)
	}
}

// hold adds paths to a disk that a pod has left, and returns all of them. It leaves out a path without an identifier, which could not be told from one to
// another disk later.
func (s *stagings) hold(path string, found []diskPath) []diskPath {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byPath[path]
	if one == nil {
		return nil
	}
	for _, p := range found {
		if p.id != "" && !slices.Contains(one.paths, p) {
			one.paths = append(one.paths, p)
		}
	}
	return slices.Clone(one.paths)
}

// failed schedules the next attempt to unstage a volume, unless the volume was unstaged in the meantime. It reports whether to tell the error err:
// it is not the one that was told last.
func (s *stagings) failed(path string, one *staging, err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPath[path] != one {
		return false
	}
	wait := unstageMost
	if one.attempts < 8 { // after more attempts the wait would be longer than unstageMost
		wait = unstageAgain << one.attempts
	}
	one.attempts++
	if !one.Waits() {
		s.heap.Put(one, time.Now().Add(wait))
		s.wake()
	}
	if errors.Is(err, errDriverAway) && one.attempts < driverPatience {
		return false
	}
	news = one.said != err.Error()
	one.said = err.Error()
	return news
}

// staged lists the staged volumes that a pod has left. On the first call it searches the disk for those that the agent before this one has left.
func (v *Volumes) staged() ([]*bound, error) {
	s := &v.stagings
	s.mu.Lock()
	found := s.found
	s.mu.Unlock()
	if !found {
		all, err := v.findStaged()
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.found = true
		known := maps.Clone(s.byPath)
		s.mu.Unlock()
		for _, b := range all {
			if path := v.layout.stagingPath(b); known[path] == nil {
				s.leave(path, b)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*bound, 0, len(s.byPath))
	for _, one := range s.byPath {
		b := one.volume
		all = append(all, &b)
	}
	return all, nil
}

// findStaged lists the volumes that the disk has as staged, and that no pod uses.
func (v *Volumes) findStaged() (all []*bound, err error) {
	dirs, err := v.stagedDirs()
	if err != nil {
		return nil, err
	}
	disks, err := v.connectedDisks()
	if err != nil || len(dirs)+len(disks) == 0 {
		return nil, err
	}
	pods, err := v.Orphans(func(types.UID) bool { return false })
	if err != nil {
		return nil, err
	}
	used, usedDisks := map[string]bool{}, map[string]bool{}
	for _, uid := range pods {
		of, errCSI := v.csiOf(uid)
		ofDisks, errSAN := v.sanOf(uid)
		if err := errors.Join(errCSI, errSAN); err != nil {
			return nil, fmt.Errorf("find out which volumes pod %s uses: %w", uid, err)
		}
		for _, b := range of {
			used[b.key()] = true
		}
		for _, b := range ofDisks {
			usedDisks[v.layout.sanDisk(b)] = true
		}
	}
	for _, b := range disks {
		if !usedDisks[v.layout.sanDisk(b)] {
			all = append(all, b)
		}
	}
	for _, dir := range dirs {
		b, err := v.readVolumeData(dir.data)
		switch {
		case failedToRead(err):
			return nil, fmt.Errorf("read %s: %w", volumeData, err)
		case err == nil:
			if b.Block = dir.device != ""; b.Block {
				b.PersistentVolume = dir.device
			} else if v.layout.staging(b) != dir.data {
				err = fmt.Errorf("it names another volume: %s", b.Handle)
			}
		}
		switch {
		case err != nil:
			v.cfg.Log.Warn("a staged volume has no valid "+volumeData+", so the agent cannot unstage it: if no pod uses the volume, unmount it and remove its directory", "dir", dir.data, "err", err)
		case !used[b.key()]:
			all = append(all, b)
		}
	}
	return all, nil
}

// stagedDir is what the disk has of a staged volume.
type stagedDir struct {
	data   string // the directory with the file volumeData
	device string // of a block volume: the name of the persistent volume
}

// stagedDirs lists the directories of all staged volumes.
func (v *Volumes) stagedDirs() (all []stagedDir, err error) {
	plugin := filepath.Dir(v.layout.devices())
	drivers, err := v.directoriesIn(plugin)
	if err != nil {
		return nil, err
	}
	for _, driver := range drivers {
		volumes, err := v.directoriesIn(filepath.Join(plugin, driver))
		if err != nil {
			return nil, err
		}
		for _, name := range volumes {
			switch {
			case driver != devicesDir:
				all = append(all, stagedDir{data: filepath.Join(plugin, driver, name)})
			case name != stagingDir && name != publishDir:
				all = append(all, stagedDir{data: v.layout.deviceData(&bound{PersistentVolume: name}), device: name})
			}
		}
	}
	return all, nil
}

func (v *Volumes) directoriesIn(dir string) (names []string, err error) {
	entries, err := v.cfg.Disk.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list staged volumes: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// isStaged reports whether a volume is staged, wholly or in part.
func (v *Volumes) isStaged(b *bound) (bool, error) {
	var dir string
	switch {
	case b.Kind.san():
		dir = v.layout.sanDisk(b)
	case b.Inline:
		return false, nil
	case b.Block:
		dir = v.layout.device(b)
	default:
		dir = v.layout.staging(b)
	}
	entry, err := v.entryOf(filepath.Dir(dir), filepath.Base(dir))
	return entry != nil, err
}

// leaveStaged records that a pod has left a volume, so that the volume is unstaged if it is staged. The caller holds the volume's lock.
func (v *Volumes) leaveStaged(b *bound) error {
	staged, err := v.isStaged(b)
	if staged {
		v.stagings.leave(v.layout.stagingPath(b), b)
	}
	return err
}

// unstageDue begins to unstage the volumes whose time has come, each in a goroutine of wg. It returns the time until the next volume is due.
func (v *Volumes) unstageDue(ctx context.Context, wg *sync.WaitGroup) time.Duration {
	if _, err := v.staged(); err != nil {
		v.cfg.Log.Warn("it is not known which volumes an earlier agent has left staged; the disk is read again later", "err", err)
		return unstageMost
	}
	ready, next := v.stagings.take(time.Now())
	for _, one := range ready {
		wg.Go(func() { _ = v.tryUnstage(ctx, one) })
	}
	return next
}

// tryUnstage makes one attempt to unstage a volume that a pod has left. If it fails, it tells why and schedules the next attempt.
func (v *Volumes) tryUnstage(ctx context.Context, one *staging) error {
	b := v.stagings.of(one)
	err := v.unstageUnused(ctx, &b)
	if err == nil || ctx.Err() != nil { // the next agent finds the volume on the disk
		return err
	}
	if v.stagings.failed(v.layout.stagingPath(&b), one, err) {
		v.tellStaged(&b, err)
	}
	if errors.Is(err, errDriverAway) && v.cfg.Driver(b.Driver) != nil { // the driver may have registered just before the volume was put into the heap
		v.stagings.hasten(b.Driver)
	}
	return err
}

// tellStaged tells, in the log and in an event of the Node, that a volume cannot be unstaged.
func (v *Volumes) tellStaged(b *bound, err error) {
	name, state := "volume "+pod.Text(b.Handle)+" of CSI driver "+b.Driver, "stays staged on"
	if b.Kind.san() {
		name, state = string(b.Kind)+" disk "+pod.Text(b.Handle), "stays connected to"
	}
	v.cfg.Log.Warn("a volume "+state+" this node, although no pod uses it; the node tries again", "volume", name, "err", err)
	if v.cfg.Claims == nil {
		return
	}
	node := v.cfg.Claims.Node().Name
	v.cfg.Event(&v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: types.UID(node)}, v1.EventTypeWarning, ReasonFailedUnstage,
		fmt.Sprintf("%s %s this node, although no pod uses it: %v. The node tries again", name, state, err))
}

// ReasonFailedUnstage is the reason of the events about volumes that cannot be unstaged, and disks that cannot be disconnected. They are events of the Node.
const ReasonFailedUnstage = "FailedUnstageVolume"

var errDriverAway = errors.New("waits for the driver to register on this node")

// driverPatience is the number of attempts after which the agent tells that a driver is away: half a minute, because after a restart of the
// agent the drivers need some seconds to register.
const driverPatience = 6

// unstageUnused unstages a volume that a pod has left. It does nothing if a pod uses the volume again, because that pod will leave it too.
func (v *Volumes) unstageUnused(ctx context.Context, b *bound) error {
	unlock, err := v.ofVolume.lock(ctx, b.key())
	if err != nil {
		return fmt.Errorf("wait for other work on the volume: %w", err)
	}
	defer unlock()
	path := v.layout.stagingPath(b)
	if staged, err := v.isStaged(b); err != nil {
		return err
	} else if !staged {
		v.stagings.drop(path)
		return nil
	}
	users, err := v.othersWith(b, "")
	if err != nil {
		return err
	}
	if len(users) > 0 {
		v.stagings.drop(path)
		return nil
	}
	began := time.Now()
	if b.Kind.san() {
		err = v.releaseDisk(ctx, b)
	} else if d := v.cfg.Driver(b.Driver); d != nil {
		err = v.unstage(ctx, d, b)
	} else {
		return errDriverAway
	}
	v.unstaged(ctx, b, began, err)
	if err != nil {
		return err
	}
	v.stagings.drop(path)
	if b.Attach {
		v.usesChanged(b, true)
	}
	return nil
}

// unstage undoes stage.
func (v *Volumes) unstage(ctx context.Context, d Driver, b *bound) error {
	if b.Block {
		return v.unstageDevice(ctx, d, b)
	}
	dir := v.layout.staging(b)
	old := *b
	switch data, err := v.loadVolumeData(dir); {
	case failedToRead(err):
		return fmt.Errorf("read %s: %w", volumeData, err)
	case err == nil:
		old.SELinux = data[labelKey] // b may be of a pod with another label, for which the volume was not staged
	}
	if err := v.writeVolumeData(dir, stagingData(&old)); err != nil { // without the mark
		return err
	}
	target := filepath.Join(dir, globalDir)
	if d.Can().Stage {
		if err := d.Unstage(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: b.Handle, StagingTargetPath: target}); err != nil {
			return err
		}
	}
	return v.removeMount(ctx, dir, target)
}
