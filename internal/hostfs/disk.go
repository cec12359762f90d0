package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// DiskSpace is what the file system at path has in all and what an ordinary user may still take: bytes and inodes.
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

// DiskUsage sums up what dir and all below it take on disk, as du does: blocks, not lengths; a file with several
// names once; other file systems left out; links not followed. It stops when ctx ends.
func (Host) DiskUsage(ctx context.Context, dir string) (bytes, inodes uint64, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("open %s: %w", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return 0, 0, fmt.Errorf("stat %s: %w", dir, err)
	}
	u := usage{ctx: ctx, dev: st.Dev, seen: map[uint64]bool{}, bytes: uint64(st.Blocks) * 512, inodes: 1}
	if err := u.walk(os.NewFile(uintptr(fd), dir)); err != nil {
		return 0, 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return u.bytes, u.inodes, nil
}

type usage struct {
	ctx           context.Context
	dev           uint64
	seen          map[uint64]bool // inodes with several names
	bytes, inodes uint64
}

// walk adds the entries of an open directory and closes it. Entries that vanish meanwhile are not there.
func (u *usage) walk(dir *os.File) error {
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if err := u.add(dir, name); err != nil {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			return u.ctx.Err()
		}
		if err := u.ctx.Err(); err != nil {
			return err
		}
	}
}

func (u *usage) add(dir *os.File, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Dev != u.dev {
		return nil //nolint:nilerr // gone, or not ours to count
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir && st.Nlink > 1 {
		if u.seen[st.Ino] {
			return nil
		}
		u.seen[st.Ino] = true
	}
	u.bytes += uint64(st.Blocks) * 512
	u.inodes++
	if !isDir {
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // gone, or no directory any more
	}
	return u.walk(os.NewFile(uintptr(fd), name))
}

// Device names what is mounted where path lies: the source of the mount (/dev/vda, tmpfs) and its mount point.
func (Host) Device(path string) (source, mountPoint string, err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", "", fmt.Errorf("resolve %s: %w", path, err)
	}
	infos, err := mountinfo.GetMounts(mountinfo.ParentsFilter(real))
	if err != nil {
		return "", "", fmt.Errorf("read mounts above %s: %w", path, err)
	}
	for _, m := range infos { // of several on one point, the last is the one on top
		if len(m.Mountpoint) >= len(mountPoint) && (m.Mountpoint == "/" || strings.HasPrefix(real+"/", m.Mountpoint+"/")) {
			source, mountPoint = m.Source, m.Mountpoint
		}
	}
	if mountPoint == "" {
		return "", "", fmt.Errorf("find mount of %s: none in /proc/self/mountinfo", path)
	}
	return source, mountPoint, nil
}
