package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host acts on the machine that the process runs on. The zero value is ready.
type Host struct {
	// noOpenat2 makes every call work as on kernels before 5.6. It is for tests.
	noOpenat2 bool
	// maxLevels replaces the constant maxLevels in tests; 0: the constant applies.
	maxLevels int
	// root is a directory that replaces / in tests, for the files of the kernel and udev about disks.
	root string
}

// MountPoints lists the mount points at or below dir, in the order in which they were mounted; a path on which two
// file systems are stacked is listed twice.
func (Host) MountPoints(dir string) ([]string, error) {
	points, err := mountPoints(func(at []byte) bool { return below(at, dir) })
	if err != nil {
		return nil, fmt.Errorf("read mounts below %s: %w", dir, err)
	}
	for i := range points {
		// The kernel adds this mark if the mount point's directory was removed in another mount namespace.
		points[i] = strings.TrimSuffix(points[i], "//deleted")
	}
	return points, nil
}

// IsMountPoint reports whether a file system (not a bind mount of the same one) is mounted on dir. It is false for a
// directory that does not exist.
func (Host) IsMountPoint(dir string) (bool, error) {
	var here, up unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return false, fmt.Errorf("stat %s: %w", dir, err)
	}
	if err := unix.Lstat(dir+"/..", &up); err != nil {
		return false, fmt.Errorf("stat parent of %s: %w", dir, err)
	}
	return here.Dev != up.Dev, nil
}

// Mount mounts a new file system (tmpfs, hugetlbfs) on target. It takes options as mount(8) takes them after -o, and does not add nosuid
// and nodev.
func (Host) Mount(source, target, fstype, options string) error {
	if err := unix.Mount(source, target, fstype, 0, options); err != nil {
		return fmt.Errorf("mount %s on %s (options %q): %w", fstype, target, options, err)
	}
	return nil
}

// MountTmpfs mounts a tmpfs of at most size bytes (0: the kernel's default, half of the memory) on target, with the mode and group
// of its root and the flags of mount(2). If the kernel supports it (from Linux 6.4 on), the tmpfs is never swapped out. maySwap is
// true if the kernel does not support this and the machine has swap space.
func (h Host) MountTmpfs(target string, size int64, mode os.FileMode, gid int, flags uintptr) (maySwap bool, err error) {
	options := []string{"mode=" + strconv.FormatUint(uint64(unixMode(mode)), 8)}
	if size > 0 {
		options = append(options, "size="+strconv.FormatInt(size, 10))
	}
	if gid >= 0 {
		options = append(options, "gid="+strconv.Itoa(gid))
	}
	return mountWithoutSwap(strings.Join(options, ","), func(options string) error {
		if err := unix.Mount("tmpfs", target, "tmpfs", flags, options); err != nil {
			return fmt.Errorf("mount tmpfs on %s (options %q): %w", target, options, err)
		}
		return nil
	}, swaps)
}

// mountWithoutSwap mounts with the option noswap, or without the option if the kernel does not know it.
func mountWithoutSwap(options string, mount func(options string) error, swaps func() bool) (maySwap bool, err error) {
	err = mount(options + ",noswap")
	if !errors.Is(err, unix.EINVAL) {
		return false, err
	}
	if err := mount(options); err != nil {
		return false, err
	}
	return swaps(), nil
}

// swaps reports whether this machine has swap space. /proc/swaps has a heading, and a line for each swap space. If the file exists but
// cannot be read, swaps returns true.
func swaps() bool {
	table, err := os.ReadFile("/proc/swaps")
	return err != nil && !errors.Is(err, os.ErrNotExist) || bytes.Count(table, []byte("\n")) > 1
}

// unixMode converts a mode to the kernel's bits.
func unixMode(mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&os.ModeSetuid != 0 {
		bits |= unix.S_ISUID
	}
	if mode&os.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if mode&os.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

// Bind mounts an open file or directory on target, which must exist and be of the same kind. It mounts the file itself
// and not its name, so a later rename changes nothing.
func (Host) Bind(f *os.File, target string) error {
	source := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount on %s: %w", target, err)
	}
	var want, got unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &want); err != nil {
		return fmt.Errorf("stat source of bind mount %s: %w", target, err)
	}
	if err := unix.Lstat(target, &got); err != nil {
		return fmt.Errorf("stat bind mount %s: %w", target, err)
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return errors.Join(fmt.Errorf("bind mount on %s shows another file than the one opened", target), Host{}.Unmount(target))
	}
	return nil
}

// MakeShared makes mounts below a directory propagate: the machine and other containers see what a container mounts in a volume
// (Bidirectional), and containers see what the machine mounts (HostToContainer). MakeShared changes nothing if the directory is on
// a shared mount. Otherwise it makes the mount on the directory shared, with all mounts below, and reports that it did so. If the
// directory is not a mount point, it first mounts the directory on itself.
func (Host) MakeShared(dir string) (made bool, err error) {
	m, real, err := mountOf(dir)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(strings.Fields(m.Optional), func(f string) bool { return strings.HasPrefix(f, "shared:") }) {
		return false, nil
	}
	if m.Mountpoint != real {
		if err := unix.Mount(real, real, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return false, fmt.Errorf("bind mount of %s on itself: %w", real, err)
		}
	}
	if err := unix.Mount("", real, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return false, fmt.Errorf("make mount %s shared: %w", real, err)
	}
	return true, nil
}

// TakeBackShared removes the mount that MakeShared made, which is a bind mount of the directory on itself. The content of the directory
// stays. If something else is mounted there, TakeBackShared does nothing.
func (h Host) TakeBackShared(dir string) error {
	m, real, err := mountOf(dir)
	if err != nil || m.Mountpoint != real {
		return err
	}
	over, _, err := mountOf(filepath.Dir(real))
	if err != nil {
		return err
	}
	below, err := filepath.Rel(over.Mountpoint, real)
	if err != nil || m.Major != over.Major || m.Minor != over.Minor || m.Root != filepath.Join(over.Root, below) {
		return err
	}
	return h.Unmount(real)
}

// Unmount removes the topmost mount of target. It detaches a busy mount: the mount disappears from the tree at once, and ends
// when its last user is gone. It is no error if nothing is mounted there.
func (Host) Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // EINVAL: not a mount point
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}
