package hostfs

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The mode bits that a group gets with SetGroup.
const (
	groupFileBits = 0o660
	groupDirBits  = 0o660 | 0o110 | unix.S_ISGID
)

// HasGroup reports whether the directory dir belongs to the group and has the mode bits that SetGroup sets. It does not check the content
// of dir: SetGroup changes dir last, so dir has the group and the bits only after a complete SetGroup.
func (Host) HasGroup(dir string, gid int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return false, fmt.Errorf("stat %s: %w", dir, err)
	}
	return int(st.Gid) == gid && st.Mode&groupDirBits == groupDirBits && st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// SetGroup gives dir and everything below it to a group: the group may read and write files, and new files in a directory get the group
// too. It follows no link and enters no mount, and changes the modes of no symbolic links. It ignores entries that disappear meanwhile. It
// stops between two entries when ctx ends, and can be repeated. It uses few descriptors and little memory.
func (h Host) SetGroup(ctx context.Context, dir string, gid int) error {
	for try := 0; ; try++ {
		err := h.setGroup(ctx, dir, gid)
		if !errors.Is(err, ErrMoved) || try == 2 {
			return err
		}
	}
}

func (h Host) setGroup(ctx context.Context, dir string, gid int) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	d, err := h.begin(fd)
	if err != nil {
		return fmt.Errorf("change group of %s: %w", dir, err)
	}
	defer d.close()
	g := grouping{descent: d, gid: gid}
	if err := g.walk(ctx); err != nil {
		return fmt.Errorf("change group of %s: %w", g.position(dir), err)
	}
	return nil
}

type grouping struct {
	*descent
	gid int
}

// walk changes the group and the mode of every entry. It changes a directory after everything in the directory.
func (g *grouping) walk(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, ok, err := g.next()
		if err == nil && ok {
			err = g.entry(string(e.name), e.kind)
		}
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		if err := g.change(g.fd()); err != nil || g.depth() == 1 {
			return err
		}
		if err := g.leave(); err != nil {
			return err
		}
	}
}

// entry enters an entry that is a directory, and changes the group and the mode of any other entry.
func (g *grouping) entry(name string, kind uint8) error {
	if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
		err := g.enter(name)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.EXDEV):
			return nil // walk now reads this directory; or the entry is gone, or is on another mount and so not part of the volume
		case !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP):
			return err
		}
	}
	fd, err := openat(g.fd(), name, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch {
	case st.Dev != g.here().dev: // the entry is on another mount
		return nil
	case st.Mode&unix.S_IFMT == unix.S_IFDIR: // a directory is here now, but the entry was listed as something else
		return ErrMoved
	}
	return g.change(fd)
}

// change sets the group and the mode of the file behind an open descriptor. It does not use the file's name, because a container could put
// another file there meanwhile.
func (g *grouping) change(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if int(st.Gid) != g.gid {
		if err := unix.Fchownat(fd, "", -1, g.gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	bits := uint32(groupFileBits)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		bits = groupDirBits
	case unix.S_IFLNK:
		return nil
	}
	mode := st.Mode &^ unix.S_IFMT
	if int(st.Gid) == g.gid && mode&bits == bits {
		return nil
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode|bits) // a change of the group can clear mode bits, so set them again
}
