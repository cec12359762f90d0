package stats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wherry-node/wherry/internal/pressure"
)

// Signals reads what node pressure is judged by, and nothing else: no pod is looked at, and the runtime is asked only
// until it has said where its images lie. It returns what it could read even with an error.
func (s *Stats) Signals(ctx context.Context) (pressure.Signals, error) {
	now := s.cfg.Now()
	out := pressure.Signals{}
	var errs []error
	if s.cfg.PodsGroup != "" {
		s.memorySignals(out, now)
	}
	if s.cfg.Disk != nil {
		errs = append(errs, s.diskSignals(out, s.cfg.RootDir, now, pressure.NodefsAvailable, pressure.NodefsInodesFree))
		images, containers := s.imageMounts(ctx)
		if images != "" {
			errs = append(errs, s.diskSignals(out, images, now, pressure.ImagefsAvailable, pressure.ImagefsInodesFree))
		}
		if containers != "" {
			errs = append(errs, s.diskSignals(out, containers, now, pressure.ContainerfsAvailable, pressure.ContainerfsInodesFree))
		}
	}
	if m := s.machine(); m.Tasks != nil && m.MaxPID > 0 {
		tasks, err := m.Tasks()
		if err != nil {
			errs = append(errs, fmt.Errorf("count tasks: %w", err))
		} else {
			out[pressure.PIDAvailable] = pressure.Observation{Available: m.MaxPID - tasks, Capacity: m.MaxPID, At: now}
		}
	}
	return out, errors.Join(errs...)
}

// memorySignals: available is capacity less working set, of the node and of the group of all pods.
func (s *Stats) memorySignals(out pressure.Signals, now time.Time) {
	t := openTree(s.cfg.HostRoot)
	if u, ok := t.read("/", now, usageOnly); ok && u.memory != nil && s.machine().MemoryBytes > 0 {
		out[pressure.MemoryAvailable] = observe(less(s.machine().MemoryBytes, *u.memory.workingSet), s.machine().MemoryBytes, now)
	}
	if u, ok := t.read(s.cfg.PodsGroup, now, cpuAndMemory); ok && u.memory != nil {
		if left := u.memory.available; left != nil { // only with a limit: node allocatable enforced
			out[pressure.AllocatableMemoryAvailable] = observe(*left, *left+*u.memory.workingSet, now)
		}
	}
}

func (s *Stats) diskSignals(out pressure.Signals, path string, now time.Time, space, files pressure.Signal) error {
	capacity, available, inodes, inodesFree, err := s.cfg.Disk.DiskSpace(path)
	if err != nil {
		return err
	}
	out[space] = observe(available, capacity, now)
	if inodes > 0 { // btrfs has no fixed number of inodes
		out[files] = observe(inodesFree, inodes, now)
	}
	return nil
}

func observe(available, capacity uint64, now time.Time) pressure.Observation {
	return pressure.Observation{Available: int64(available), Capacity: int64(capacity), At: now}
}

// imageMounts is where images and writable layers lie. A runtime does not move them while it runs.
func (s *Stats) imageMounts(ctx context.Context) (images, containers string) {
	if m := s.mounts.Load(); m != nil {
		return m.images, m.containers
	}
	i, c := s.imageFs(ctx)
	if i == nil {
		return "", ""
	}
	m := &mounts{images: i.GetFsId().GetMountpoint(), containers: c.GetFsId().GetMountpoint()}
	s.mounts.Store(m)
	return m.images, m.containers
}

type mounts struct{ images, containers string }
