package hostfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrMounted is the cause if RemoveTree finds a mount. RemoveTree deletes nothing on the mount.
var ErrMounted = errors.New("something is mounted there")

// maxPasses is how often one directory is read again because new entries appeared.
const maxPasses = 100

// errRefilled is the cause if a directory does not become empty.
var errRefilled = errors.New("somebody puts new entries there while it is removed")

// RemoveTree deletes dir and everything below it. It follows no symbolic link and enters no mount: it leaves a mount and its content alone,
// reports the mount as ErrMounted, and deletes the rest. A missing dir is no error. It stops between two entries when ctx ends. It uses few
// descriptors and little memory, however deep the tree is.
func (h Host) RemoveTree(ctx context.Context, dir string) error {
	parent, err := openRoot(filepath.Dir(dir))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	base, at := filepath.Base(dir), int(parent.Fd())
	for range maxPasses {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		full, err := removeEntry(at, base, unix.DT_UNKNOWN)
		if err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		if !full {
			return nil
		}
		if err := h.empty(ctx, at, dir); err != nil {
			return err
		}
	}
	return fmt.Errorf("remove %s: %w", dir, errRefilled)
}

// removeEntry deletes one entry. full is true if the entry is a directory that is not empty, which therefore stays.
func removeEntry(at int, name string, kind uint8) (full bool, err error) {
	if kind != unix.DT_DIR {
		err = unix.Unlinkat(at, name, 0)
	}
	var file error
	if kind == unix.DT_DIR || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		file = err
		err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOTDIR) {
		if err = file; file == nil { // the entry was listed as a directory, but is now a file
			err = unix.Unlinkat(at, name, 0)
		}
	}
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
		return true, nil
	case errors.Is(err, unix.EBUSY):
		return false, ErrMounted
	}
	return false, err
}

// empty deletes everything below dir, which is an entry of the open directory at.
func (h Host) empty(ctx context.Context, at int, dir string) error {
	var mount int
	var err error
	if h.noOpenat2 {
		if mount, err = mountID(at); err != nil {
			return fmt.Errorf("open %s for removal: %w", dir, err)
		}
	}
	fd, err := h.openDirOn(at, filepath.Base(dir), mount)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return nil // the entry has changed since it was listed, so the caller reads it again
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("remove %s: %w", dir, ErrMounted)
	case err != nil:
		return fmt.Errorf("open %s for removal: %w", dir, err)
	}
	d, err := h.begin(fd)
	if err != nil {
		return fmt.Errorf("open %s for removal: %w", dir, err)
	}
	defer d.close()
	r := &removal{descent: d, ctx: ctx, top: dir}
	return r.run()
}

// removal empties a directory from its leaves up. If an entry cannot be removed, the entry and the directories above it stay, and
// the rest is removed.
type removal struct {
	*descent
	ctx    context.Context
	top    string
	first  error // the first error
	skip   bool  // skip the next entry: it is the directory that was just left and could not be emptied
	lifted bool  // something was moved to the top since the last reading of the top began
	moved  int   // how often going up failed with ErrMoved
}

func (r *removal) run() error {
	for {
		if err := r.ctx.Err(); err != nil {
			return fmt.Errorf("remove %s: %w", r.top, err)
		}
		e, ok, err := r.next()
		if err != nil {
			r.fail("read", "", err)
		}
		if !ok {
			r.skip = false
			done, err := r.end()
			if done || err != nil {
				return errors.Join(err, r.first)
			}
			continue
		}
		if r.skip {
			r.skip, r.here().tries = false, 0
			continue
		}
		r.one(string(e.name), e.kind)
	}
}

// end is called when a directory has no more entries. It goes up, or reads the top directory again if something was lifted into it. done
// is true when the whole tree has been visited.
func (r *removal) end() (done bool, err error) {
	switch {
	case r.depth() > 1:
		return false, r.up()
	case r.lifted: // a lifted directory may come before the present position, so read the top again
		r.lifted = false
		return false, r.rewind()
	}
	return true, nil
}

// one deletes an entry, or enters it if it is a directory that is not empty. After that directory has been emptied, one is called for it
// again and deletes it.
func (r *removal) one(name string, kind uint8) {
	full, err := removeEntry(r.fd(), name, kind)
	if err != nil {
		r.fail("remove", name, err)
	}
	l := r.here()
	if err != nil || !full {
		l.tries = 0
		return
	}
	if l.tries++; l.tries > maxPasses {
		l.tries = 0
		r.fail("remove", name, errRefilled)
		return
	}
	r.unread()
	err = r.enter(name)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return // the directory was entered, or the entry has changed, so read it again
	case errors.Is(err, ErrTooDeep):
		if err = r.lift(name); err == nil {
			return
		}
	case errors.Is(err, unix.EXDEV):
		err = ErrMounted
	}
	r.fail("remove", name, err)
	r.skip = true
}

// lift moves a directory that is too deep into the top directory. The top directory is read again later.
func (r *removal) lift(name string) error {
	err := unix.Renameat(r.fd(), name, r.levels[0].reader.fd, ".removed-"+rand.Text())
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	r.lifted = true
	return err
}

// up goes back to the directory above. If it cannot find that directory again, it starts at the top.
func (r *removal) up() error {
	failed := r.here().failed
	err := r.leave()
	if err == nil {
		if failed {
			r.here().failed, r.skip = true, true
		}
		return nil
	}
	if r.moved++; !errors.Is(err, ErrMoved) || r.moved > maxPasses {
		return fmt.Errorf("remove %s: %w", r.position(r.top), err)
	}
	r.skip = false
	if err := r.restart(); err != nil {
		return fmt.Errorf("read %s: %w", r.top, err)
	}
	return nil
}

func (r *removal) fail(verb, name string, err error) {
	r.here().failed = true
	if r.first == nil {
		r.first = fmt.Errorf("%s %s: %w", verb, filepath.Join(r.position(r.top), name), err)
	}
}
