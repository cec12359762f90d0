package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Meter measures directories. Calls may be concurrent.
type Meter interface {
	// DiskSpace returns the size and the free space of the file system at path, in bytes and inodes.
	DiskSpace(path string) (capacity, available, inodes, inodesFree uint64, err error)
	// DiskUsage walks dir and returns its disk usage. It stops when ctx ends. If it returns an error, it also returns the usage
	// that it had found by then.
	DiskUsage(ctx context.Context, dir string) (bytes, inodes uint64, err error)
}

// Usage is how full a volume is.
type Usage struct {
	Name string
	// Claim is the name of the persistent volume claim of the volume, if it has one.
	Claim string
	// Memory says that the volume is in memory. Its usage counts against the pod's memory, not against its ephemeral storage.
	Memory bool
	// These four fields describe the file system of the volume. A memory-backed volume is a file system of its own.
	CapacityBytes, AvailableBytes, Inodes, InodesFree uint64
	// These two fields describe the volume itself.
	UsedBytes, InodesUsed uint64
	// Time is when UsedBytes and InodesUsed were measured.
	Time time.Time
	// Health is what the CSI driver says about the condition of the volume; nil: it is not known.
	Health *Health
}

// Health is the condition of a volume, as its CSI driver reports it.
type Health struct {
	// Abnormal: something is wrong with the volume.
	Abnormal bool
	// Message describes the condition. It is a text of the driver, made safe to show.
	Message string
}

// usageTTL is the maximum age of a walk's result ("volumeStatsAggPeriod", 1 minute).
const usageTTL = time.Minute

// walks caches the results of walks through directories.
type walks struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]walked // the last result for each directory of each pod
}

type walked struct {
	bytes, inodes uint64
	at            time.Time
}

// Usage measures the volumes of a pod that the agent made: emptyDirs and files from the API. It walks a volume at most once a
// minute. If a walk fails, it uses the part that the walk found, or the last result if that is larger. It leaves out volumes that
// do not exist yet. The error joins the errors of all volumes that it could not measure completely.
func (v *Volumes) Usage(ctx context.Context, p *v1.Pod) ([]Usage, error) {
	return v.ownUsage(ctx, p, usageTTL)
}

// UsageNow measures the volumes of a pod as Usage does, but walks each volume again.
func (v *Volumes) UsageNow(ctx context.Context, p *v1.Pod) ([]Usage, error) {
	return v.ownUsage(ctx, p, 0)
}

// UsageNow returns nothing, because no volume uses disk space.
func (m *InMemory) UsageNow(context.Context, *v1.Pod) ([]Usage, error) { return nil, nil }

// ownUsage measures the volumes of a pod that the agent made. It does not walk a volume again whose last walk is younger than maxAge.
func (v *Volumes) ownUsage(ctx context.Context, p *v1.Pod, maxAge time.Duration) ([]Usage, error) {
	var all []Usage
	var errs []error
	for _, vol := range usedVolumes(p) {
		k, err := kindOf(vol)
		if err != nil || (k != kindEmptyDir && !k.files()) {
			continue
		}
		u, err := v.usage(ctx, p.UID, vol.Name, v.layout.volume(p.UID, k, vol.Name), maxAge)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			errs = append(errs, fmt.Errorf("volume %q: %w", vol.Name, err))
		}
		all = append(all, u)
	}
	return all, errors.Join(errs...)
}

// These are the ways to measure a volume, as Config.Measured names them.
const (
	sourceWalk       = "du"
	sourceFileSystem = "statfs"
)

func (v *Volumes) usage(ctx context.Context, uid types.UID, name, dir string, maxAge time.Duration) (Usage, error) {
	began := time.Now()
	capacity, available, inodes, inodesFree, err := v.cfg.Host.DiskSpace(dir)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Name: name, CapacityBytes: capacity, AvailableBytes: available, Inodes: inodes, InodesFree: inodesFree, Time: time.Now()}
	if u.Memory, err = v.cfg.Host.IsMountPoint(dir); err != nil {
		return Usage{}, err
	}
	if u.Memory { // the tmpfs contains only this volume, so its file system's numbers are the volume's usage
		u.UsedBytes, u.InodesUsed = capacity-available, inodes-inodesFree
		v.cfg.Measured(sourceFileSystem, time.Since(began))
		return u, nil
	}
	w, err := v.walk(ctx, uid, dir, maxAge)
	u.UsedBytes, u.InodesUsed, u.Time = w.bytes, w.inodes, w.at
	return u, err
}

func (v *Volumes) walk(ctx context.Context, uid types.UID, dir string, maxAge time.Duration) (walked, error) {
	v.walks.mu.Lock()
	last, known := v.walks.pods[uid][dir]
	if v.walks.pods[uid] == nil {
		v.walks.pods[uid] = map[string]walked{}
	}
	v.walks.mu.Unlock()
	now := time.Now()
	if known && now.Sub(last.at) < maxAge {
		return last, nil
	}
	bytes, inodes, err := v.cfg.Host.DiskUsage(ctx, dir)
	v.cfg.Measured(sourceWalk, time.Since(now))
	if err != nil {
		if known && last.bytes >= bytes {
			return last, err
		}
		return walked{bytes: bytes, inodes: inodes, at: now}, err
	}
	w := walked{bytes: bytes, inodes: inodes, at: now}
	v.walks.mu.Lock()
	defer v.walks.mu.Unlock()
	if dirs := v.walks.pods[uid]; dirs != nil { // nil: the pod was removed during the walk, and nobody would remove a new entry
		dirs[dir] = w
	}
	return w, nil
}

func (w *walks) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}
