package hostfs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// DiskSpace returns the size of the file system at path, and how much of it an ordinary user may still use, in bytes and inodes.
func (Host) DiskSpace(path string) (capacity, available, inodes, inodesFree uint64, err error) {
	var st unix.Statfs_t
	if err := statfs(path, &st); err != nil {
		return 0, 0, 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	size := uint64(st.Frsize)
	if size == 0 {
		size = uint64(st.Bsize)
	}
	return st.Blocks * size, st.Bavail * size, st.Files, st.Ffree, nil
}

func statfs(path string, st *unix.Statfs_t) error {
	for {
		if err := unix.Statfs(path, st); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// DiskUsage adds up the disk usage of dir and everything below it, as du does: it counts blocks, not lengths, leaves out other mounts and
// follows no link. A file with n names counts as 1/n under each name, so that DiskUsage need not remember which files it has seen. It stops
// when ctx ends. It uses few descriptors and little memory, however deep or wide the tree is.
//
// If something cannot be measured, DiskUsage returns an error, together with what it has counted until then. The real usage is at least
// that large.
func (h Host) DiskUsage(ctx context.Context, dir string) (bytes, inodes uint64, err error) {
	for try := 0; ; try++ {
		bytes, inodes, err = h.diskUsage(ctx, dir)
		if !errors.Is(err, ErrMoved) || try == 2 {
			return bytes, inodes, err
		}
	}
}

func (h Host) diskUsage(ctx context.Context, dir string) (bytes, inodes uint64, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("open %s: %w", dir, err)
	}
	d, err := h.begin(fd)
	if err != nil {
		return 0, 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	defer d.close()
	u := usage{descent: d}
	if err = u.addOpen(); err == nil {
		err = u.walk(ctx)
	}
	if err != nil {
		err = fmt.Errorf("measure %s: %w", u.position(dir), err)
	}
	return uint64(math.Round(u.bytes)), uint64(math.Round(u.inodes)), err
}

// usage adds up the disk usage of a tree. It adds 1/n of the size of a file with n names each time that it finds one of the names.
type usage struct {
	*descent
	bytes, inodes float64
}

func (u *usage) walk(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, ok, err := u.next()
		switch {
		case err != nil:
			return err
		case ok:
			if err := u.entry(string(e.name), e.kind == unix.DT_DIR); err != nil {
				return err
			}
		case u.depth() == 1:
			return nil
		default:
			if err := u.leave(); err != nil {
				return err
			}
		}
	}
}

// entry adds the usage of an entry, and goes into the entry if it is a directory. An entry that disappears before it is measured does not
// count.
func (u *usage) entry(name string, isDir bool) error {
	if isDir {
		err := u.enter(name)
		switch {
		case err == nil:
			return u.addOpen()
		case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV): // the entry is gone, or on another mount, and does not count
			return nil
		case !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP):
			return err
		}
	}
	var st unix.Stat_t
	err := unix.Fstatat(u.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		u.add(&st)
		return nil
	case isDir: // the entry was listed as a directory, but is no longer one
		return ErrMoved
	}
	return u.entry(name, true) // the file system does not say which entries are directories, so try to enter it
}

// addOpen adds the usage of the current directory itself, without its entries.
func (u *usage) addOpen() error {
	var st unix.Stat_t
	if err := unix.Fstat(u.fd(), &st); err != nil {
		return err
	}
	st.Nlink = 1 // the number of links of a directory depends on its subdirectories, so it is ignored
	u.add(&st)
	return nil
}

func (u *usage) add(st *unix.Stat_t) {
	names := float64(max(1, st.Nlink))
	u.bytes += float64(st.Blocks) * 512 / names
	u.inodes += 1 / names
}

// mountOf returns the mount that has path, and path with its links resolved.
func mountOf(path string) (found *mountinfo.Info, real string, err error) {
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return nil, "", fmt.Errorf("resolve %s: %w", path, err)
	}
	infos, err := mountinfo.GetMounts(mountinfo.ParentsFilter(real))
	if err != nil {
		return nil, "", fmt.Errorf("read mounts above %s: %w", path, err)
	}
	for _, m := range infos { // of several mounts on one mount point, the last one is on top, so the loop goes on
		if (found == nil || len(m.Mountpoint) >= len(found.Mountpoint)) && (m.Mountpoint == "/" || strings.HasPrefix(real+"/", m.Mountpoint+"/")) {
			found = m
		}
	}
	if found == nil {
		return nil, "", fmt.Errorf("find mount of %s: none in /proc/self/mountinfo", path)
	}
	return found, real, nil
}
