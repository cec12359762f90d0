package simcri

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Lag says how late a runtime is with disks. The zero value is a runtime that is never late; containerd's defaults are about
// Lag{Layers: 10 * time.Second, Deletion: time.Second}.
type Lag struct {
	// Layers is how often the runtime measures all writable layers. Until the first time, it says that a layer has 0 bytes, without the time of a
	// measurement. 0: it measures at each request.
	Layers time.Duration
	// Deletion is how long after its answer the runtime deletes the files of a removed container or image.
	Deletion time.Duration
}

// deletion is the files of something that was removed.
type deletion struct {
	at    time.Time // when they are deleted
	bytes uint64
}

// deleteLater keeps the files of something that was removed until the runtime deletes them. The caller holds the lock.
func (r *Runtime) deleteLater(bytes uint64, now time.Time) {
	if r.undeleted(now); r.cfg.Lag.Deletion > 0 {
		r.deletions = append(r.deletions, deletion{now.Add(r.cfg.Lag.Deletion), bytes})
	}
}

// undeleted returns the size of the files that the runtime has not deleted yet. The caller holds the lock.
func (r *Runtime) undeleted(now time.Time) (bytes int64) {
	r.deletions = slices.DeleteFunc(r.deletions, func(d deletion) bool { return !now.Before(d.at) })
	for _, d := range r.deletions {
		bytes += int64(d.bytes)
	}
	return bytes
}

// writable returns what the runtime says about the writable layer of a container. The caller holds the lock.
func (r *Runtime) writable(c *container, now time.Time) *runtimeapi.FilesystemUsage {
	u := &runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.cfg.ImageFsPath}, UsedBytes: u64(0), InodesUsed: u64(0)}
	if every := r.cfg.Lag.Layers; every > 0 {
		now = now.Truncate(every)
	}
	if now.UnixNano() < c.started {
		return u
	}
	u.Timestamp, u.UsedBytes, u.InodesUsed = now.UnixNano(), u64(c.layer(now)), u64(10)
	return u
}
