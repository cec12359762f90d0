package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// MountTable is the mount table of a simulated machine. Calls may be concurrent.
type MountTable interface {
	// Points returns the mount points at or below the directory dir, in mount order.
	Points(dir string) ([]string, error)
	// Mount adds a mount on the directory or file point.
	Mount(point string) error
	// Unmount removes the newest mount on point. It does nothing if there is none.
	Unmount(point string) error
}

// SimulatedHost is a Host whose directories are real and whose mounts, groups and loop devices are not: it only records what is mounted
// where. A directory on which something is mounted stays an ordinary one. So no method needs the rights of root, and none changes the
// machine outside of the directories that it gets. The zero value is ready.
type SimulatedHost struct {
	hostfs.Host
	// Table has the mounts of the machine; nil: the mounts are those that this SimulatedHost has made.
	Table MountTable
	own   mountList
}

var _ Host = (*SimulatedHost)(nil)

func (h *SimulatedHost) table() MountTable {
	if h.Table != nil {
		return h.Table
	}
	return &h.own
}

// MountPoints lists the recorded mounts at or below dir.
func (h *SimulatedHost) MountPoints(dir string) (points []string, err error) {
	return h.table().Points(dir)
}

// Mounted reports whether a mount on dir is recorded.
func (h *SimulatedHost) Mounted(dir string) (bool, error) {
	points, err := h.table().Points(dir)
	return slices.Contains(points, dir), err
}

// IsMountPoint does the same as Mounted.
func (h *SimulatedHost) IsMountPoint(dir string) (bool, error) { return h.Mounted(dir) }

// MountTmpfs records a mount.
func (h *SimulatedHost) MountTmpfs(target string, _ int64, _ fs.FileMode, _ int, _ uintptr) (maySwap bool, err error) {
	return false, h.table().Mount(target)
}

// Mount records a mount.
func (h *SimulatedHost) Mount(_, target, _, _ string) error { return h.table().Mount(target) }

// Bind records a mount.
func (h *SimulatedHost) Bind(_ *os.File, target string) error { return h.table().Mount(target) }

// RunTool records what mount(8) would mount, or drops what umount(8) would unmount. The mount point is the last argument of both.
func (h *SimulatedHost) RunTool(_ context.Context, argv []string) (hostfs.Ran, error) {
	target := argv[len(argv)-1]
	if argv[0] == "umount" {
		return hostfs.Ran{}, h.table().Unmount(target)
	}
	return hostfs.Ran{}, h.table().Mount(target)
}

// Unmount drops the newest record of a mount on target.
func (h *SimulatedHost) Unmount(target string) error { return h.table().Unmount(target) }

// SetMountOptions does nothing.
func (h *SimulatedHost) SetMountOptions(string, []string) (without []string, err error) {
	return nil, nil
}

// HasGroup reports that no change of a group is necessary.
func (h *SimulatedHost) HasGroup(string, int) (bool, error) { return true, nil }

// SetGroup does nothing.
func (h *SimulatedHost) SetGroup(context.Context, string, int) error { return nil }

// MountsOfSame returns none: what a simulated machine has mounted was mounted by this agent, which has a record of it.
func (h *SimulatedHost) MountsOfSame(string, string) ([]string, error) { return nil, nil }

// errNoSAN is the error of the methods about disks of a storage area network.
var errNoSAN = errors.New("a simulated machine has no iSCSI or Fibre Channel disks")

// ISCSISessions returns an error.
func (h *SimulatedHost) ISCSISessions(string) ([]hostfs.ISCSISession, error) { return nil, errNoSAN }

// ScanUnit returns an error.
func (h *SimulatedHost) ScanUnit(int, int) error { return errNoSAN }

// ScanFibreChannel returns an error.
func (h *SimulatedHost) ScanFibreChannel() error { return errNoSAN }

// DiskLinks returns an error.
func (h *SimulatedHost) DiskLinks(string) (map[string]string, error) { return nil, errNoSAN }

// MultipathOf returns an error.
func (h *SimulatedHost) MultipathOf(string) (string, []string, error) { return "", nil, errNoSAN }

// DiskID returns "".
func (h *SimulatedHost) DiskID(string) string { return "" }

// RemoveDisk returns an error.
func (h *SimulatedHost) RemoveDisk(string) error { return errNoSAN }

// DeviceAt returns "".
func (h *SimulatedHost) DeviceAt(string) (string, error) { return "", nil }

// AttachLoop does nothing.
func (h *SimulatedHost) AttachLoop(string) error { return nil }

// DetachLoop does nothing.
func (h *SimulatedHost) DetachLoop(string) error { return nil }

// mountList is a MountTable in memory. The zero value is ready.
type mountList struct {
	mu     sync.Mutex
	mounts []string // the mount points, in mount order
}

// Points returns the mount points at or below dir, in mount order. The error is always nil.
func (l *mountList) Points(dir string) (points []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.mounts {
		if strings.HasPrefix(m+"/", dir+"/") {
			points = append(points, m)
		}
	}
	return points, nil
}

// Mount adds a mount on point. The error is always nil.
func (l *mountList) Mount(point string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mounts = append(l.mounts, point)
	return nil
}

// Unmount removes the newest mount on point. The error is always nil.
func (l *mountList) Unmount(point string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range slices.Backward(l.mounts) {
		if m == point {
			l.mounts = slices.Delete(l.mounts, i, i+1)
			break
		}
	}
	return nil
}
