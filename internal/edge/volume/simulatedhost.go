package volume

import (
	"context"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// SimulatedHost is a Host whose directories are real and whose mounts, groups and loop devices are not: it only records what is mounted
// where. A directory on which something is mounted stays an ordinary one. So no method needs the rights of root, and none changes the
// machine outside of the directories that it gets. The zero value is ready.
type SimulatedHost struct {
	hostfs.Host
	mu     sync.Mutex
	mounts []string // the mount points, in mount order
}

var _ Host = (*SimulatedHost)(nil)

// mount records a mount on target.
func (h *SimulatedHost) mount(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mounts = append(h.mounts, target)
}

// MountPoints lists the recorded mounts at or below dir.
func (h *SimulatedHost) MountPoints(dir string) (points []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.mounts {
		if strings.HasPrefix(m+"/", dir+"/") {
			points = append(points, m)
		}
	}
	return points, nil
}

// Mounted reports whether a mount on dir is recorded.
func (h *SimulatedHost) Mounted(dir string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.mounts, dir), nil
}

// IsMountPoint does the same as Mounted.
func (h *SimulatedHost) IsMountPoint(dir string) (bool, error) { return h.Mounted(dir) }

// MountTmpfs records a mount.
func (h *SimulatedHost) MountTmpfs(target string, _ int64, _ fs.FileMode, _ int, _ uintptr) (maySwap bool, err error) {
	h.mount(target)
	return false, nil
}

// Mount records a mount.
func (h *SimulatedHost) Mount(_, target, _, _ string) error {
	h.mount(target)
	return nil
}

// Bind records a mount.
func (h *SimulatedHost) Bind(_ *os.File, target string) error {
	h.mount(target)
	return nil
}

// RunTool records what mount(8) would mount, or drops what umount(8) would unmount. The mount point is the last argument of both.
func (h *SimulatedHost) RunTool(_ context.Context, argv []string) (hostfs.Ran, error) {
	target := argv[len(argv)-1]
	if argv[0] == "umount" {
		return hostfs.Ran{}, h.Unmount(target)
	}
	h.mount(target)
	return hostfs.Ran{}, nil
}

// Unmount drops the newest record of a mount on target.
func (h *SimulatedHost) Unmount(target string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range slices.Backward(h.mounts) {
		if m == target {
			h.mounts = slices.Delete(h.mounts, i, i+1)
			break
		}
	}
	return nil
}

// SetMountOptions does nothing.
func (h *SimulatedHost) SetMountOptions(string, []string) (without []string, err error) {
	return nil, nil
}

// HasGroup reports that no change of a group is necessary.
func (h *SimulatedHost) HasGroup(string, int) (bool, error) { return true, nil }

// SetGroup does nothing.
func (h *SimulatedHost) SetGroup(context.Context, string, int) error { return nil }

// AttachLoop does nothing.
func (h *SimulatedHost) AttachLoop(string) error { return nil }

// DetachLoop does nothing.
func (h *SimulatedHost) DetachLoop(string) error { return nil }
