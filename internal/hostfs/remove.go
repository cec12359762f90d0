package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrMounted is the cause when RemoveTree meets a mount: nothing behind it has been touched.
var ErrMounted = errors.New("something is mounted there")

// RemoveTree deletes dir and all below it. It follows no symbolic link and enters no mount: what is mounted below
// is left whole and reported as ErrMounted, the rest is deleted. A dir that does not exist is no error. It stops
// between two entries when ctx ends.
func (h Host) RemoveTree(ctx context.Context, dir string) error {
	parent, err := openRoot(filepath.Dir(dir))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	return h.removeAt(ctx, parent, filepath.Base(dir), dir)
}

// removeAt deletes one entry of parent; full is its path, for messages.
func (h Host) removeAt(ctx context.Context, parent *os.File, name, full string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remove %s: %w", full, err)
	}
	err := unix.Unlinkat(int(parent.Fd()), name, 0)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY): // a file with something mounted on it
		return fmt.Errorf("remove %s: %w", full, ErrMounted)
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return fmt.Errorf("remove %s: %w", full, err)
	}
	sub, err := h.openSameMount(parent, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("remove %s: %w", full, ErrMounted)
	case err != nil:
		return fmt.Errorf("open %s for removal: %w", full, err)
	}
	err = h.removeEntries(ctx, sub, full)
	sub.Close()
	if err != nil {
		return err
	}
	err = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove %s: %w", full, ErrMounted)
	}
	return fmt.Errorf("remove %s: %w", full, err)
}

// removeEntries empties an open directory, going on after a failure so that one mount keeps only itself.
func (h Host) removeEntries(ctx context.Context, dir *os.File, full string) error {
	for {
		names, err := dir.Readdirnames(1024)
		var failed error
		for _, name := range names {
			if e := h.removeAt(ctx, dir, name, filepath.Join(full, name)); e != nil && failed == nil {
				failed = e
			}
		}
		if failed != nil {
			return failed
		}
		if err != nil || len(names) == 0 {
			return nil // io.EOF; a real failure shows itself when the directory cannot be removed
		}
		// Deleting while reading may skip entries on some file systems: read again from the start.
		if _, err := dir.Seek(0, 0); err != nil {
			return fmt.Errorf("read %s: %w", full, err)
		}
	}
}

// openSameMount opens a subdirectory of parent for reading; EXDEV when it is another mount, bind mounts of the same
// file system included. The kernel checks it in the same step in which it opens: there is no moment in between.
func (h Host) openSameMount(parent *os.File, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if !h.noOpenat2 {
		how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
		fd, err := unix.Openat2(int(parent.Fd()), name, &how)
		for try := 0; errors.Is(err, unix.EAGAIN) && try < 100; try++ {
			fd, err = unix.Openat2(int(parent.Fd()), name, &how)
		}
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return nil, err
		}
	}
	fd, err := unix.Openat(int(parent.Fd()), name, flags, 0)
	if err != nil {
		return nil, err
	}
	sub := os.NewFile(uintptr(fd), name)
	here, err := mountID(int(parent.Fd()))
	if err == nil {
		var there int
		if there, err = mountID(fd); err == nil && here != there {
			err = unix.EXDEV
		}
	}
	if err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// mountID says through which mount a descriptor was opened.
func mountID(fd int) (int, error) {
	data, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, fmt.Errorf("no mnt_id in /proc/self/fdinfo/%d", fd)
}
