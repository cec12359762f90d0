package stats

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// ContainerDisk is the disk usage of a container, in bytes.
type ContainerDisk struct {
	Name string
	// Layer is the container's writable layer, and those of its earlier attempts if PodDisks counts them. Logs counts the logs of all its attempts
	// that still exist.
	Layer, Logs uint64
}

// LayersApart reports whether images and writable layers are on another file system than the agent's directory. If so, a container's
// writable layer does not count against its limit of ephemeral storage.
func (s *Stats) LayersApart(ctx context.Context) bool {
	_, layers := s.imageMounts(ctx)
	var root, there unix.Stat_t
	if layers == "" || unix.Stat(s.cfg.RootDir, &root) != nil || unix.Stat(layers, &there) != nil {
		return false
	}
	return root.Dev != there.Dev
}

// DiskLayout reports whether images are on another file system than the agent's directory, and if so, whether the writable layers
// of containers are nevertheless on the file system of the agent's directory. known is false until the runtime has said where it keeps
// images and layers. DiskLayout does IO only on these directories.
func (s *Stats) DiskLayout() (imagesApart, layersWithPods, known bool) {
	m := s.mounts.Load()
	if m == nil {
		return false, false, false
	}
	var root, i, l unix.Stat_t
	if m.images == "" || unix.Stat(s.cfg.RootDir, &root) != nil || unix.Stat(m.images, &i) != nil || root.Dev == i.Dev {
		return false, false, true
	}
	return true, m.containers != "" && unix.Stat(m.containers, &l) == nil && l.Dev == root.Dev, true
}

// LayerDir returns the directory of the writable layers; "": not known yet. It does no IO.
func (s *Stats) LayerDir() string {
	if m := s.mounts.Load(); m != nil {
		return m.containers
	}
	return ""
}

// Run asks the runtime where it keeps images and layers until it has answered: the answer is needed in a shortage of memory or disk space, when
// there is no time to wait for the runtime. Until ctx ends, it measures the logs of containers when LogSizes wants that.
func (s *Stats) Run(ctx context.Context) error {
	wanted := s.logs.listen()
	s.imageMounts(ctx)
	var again <-chan time.Time // nil: the runtime has answered
	wait := time.Second
	for {
		// The timer goes on during a measurement of logs: scrapes that come as often as it fires must not put it off for ever.
		switch known := s.mounts.Load() != nil; {
		case known:
			again = nil
		case again == nil:
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			again, wait = nil, min(2*wait, time.Minute)
			s.imageMounts(ctx)
		case <-wanted:
			s.measureOldLogs(ctx)
		}
	}
}

// mountsWithin is the timeout of the call that finds out where images are, because the callers of imageMounts must not wait for a
// runtime that hangs.
const mountsWithin = 2 * time.Second

// imageMounts returns the directories of images and of writable layers. It caches the answer, because a runtime does not move
// them while it runs.
func (s *Stats) imageMounts(ctx context.Context) (images, containers string) {
	if m := s.mounts.Load(); m != nil {
		return m.images, m.containers
	}
	ctx, cancel := context.WithTimeout(ctx, mountsWithin)
	defer cancel()
	i, c := s.imageFs(ctx)
	if i == nil {
		return "", ""
	}
	m := &mounts{images: i.GetFsId().GetMountpoint(), containers: c.GetFsId().GetMountpoint()}
	s.mounts.Store(m)
	return m.images, m.containers
}

type mounts struct{ images, containers string }
