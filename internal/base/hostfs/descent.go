package hostfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// These constants bound a walk through a tree that a container made.
const (
	// openLevels is how many of the deepest directories stay open, in addition to the top one. Few trees are deeper.
	openLevels = 8
	// maxLevels is the deepest level of a walk. A path of PATH_MAX bytes has at most 2,048 levels, so no ordinary tree
	// is deeper.
	maxLevels = 128 << 10
	// direntBytes is the buffer for the entries of one open directory: about 250 short names.
	direntBytes = 8 << 10
)

var (
	// ErrTooDeep is the cause when a tree has more levels than a walk can follow.
	ErrTooDeep = errors.New("more than " + strconv.Itoa(maxLevels) + " directories lie in each other")
	// ErrMoved is the cause if a directory is moved while a walk is inside it.
	ErrMoved = errors.New("a directory was moved while it was read")
)

// descent is a position in a tree of directories, with the path back to the top. It never leaves the mount of the top and follows
// no link. It keeps at most openLevels+1 directories open, and a few words of memory for each other level.
//
// It goes down by name from an open directory. It goes up by ".." if the directory above is no longer open; it then checks that
// device, inode and file handle are the same as on the way down. If a directory has been moved in the meantime, going up fails with
// ErrMoved, so the descent never gets to another tree.
type descent struct {
	host   Host
	seed   maphash.Seed
	mount  int // ID of the mount of the top directory; set only if Host.noOpenat2 is set
	levels []level
	spare  []*dirReader // closed readers, whose buffers are used again
}

// level is one of the directories from the top directory down to the current one.
type level struct {
	dev, ino uint64
	// handle is the hash of the directory's file handle; valid while the reader is closed; 0 if the file system has no handles. A file
	// system may give the inode number of a removed directory to a new one; the handle tells these two apart.
	handle uint64
	reader *dirReader // reader of the directory; nil while the directory is closed, to save descriptors
	at     int64      // position in the directory from which reading continues; valid while the reader is closed
	// These two fields are for removal: whether an entry could not be removed, and how often the current entry was entered.
	failed bool
	tries  uint8
}

// dirReader reads the entries of an open directory in batches.
type dirReader struct {
	fd   int
	buf  []byte
	n    int // bytes in buf
	pos  int // position of the next entry in buf
	last int // position of the previous entry, to which unread returns
	// These are positions in the directory: of the next entry, and of the one before it.
	at, lastAt int64
}

// dirEntry is one entry of a directory. name is valid until the next call of a method of descent.
type dirEntry struct {
	name []byte
	kind uint8 // a value DT_*; only a hint
}

// begin starts a descent at an open directory. The descent owns fd: close closes it, and begin closes it if it fails.
func (h Host) begin(fd int) (*descent, error) {
	d := &descent{host: h, seed: maphash.MakeSeed()}
	if h.noOpenat2 {
		var err error
		if d.mount, err = mountID(fd); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	if err := d.push(fd); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *descent) close() {
	for i := range d.levels {
		d.closeLevel(i)
	}
}

func (d *descent) depth() int   { return len(d.levels) }
func (d *descent) here() *level { return &d.levels[len(d.levels)-1] }
func (d *descent) fd() int      { return d.here().reader.fd }

// push goes to an open directory below the current one. If it fails, it closes the directory.
func (d *descent) push(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	d.levels = append(d.levels, level{dev: st.Dev, ino: st.Ino, reader: d.newReader(fd)})
	if i := len(d.levels) - 1 - openLevels; i > 0 { // the top stays open, so it does not count
		if l := &d.levels[i]; l.reader != nil {
			l.handle = d.handleOf(l.reader.fd)
		}
		d.closeLevel(i)
	}
	return nil
}

func (d *descent) newReader(fd int) *dirReader {
	if n := len(d.spare); n > 0 {
		r := d.spare[n-1]
		d.spare = d.spare[:n-1]
		*r = dirReader{fd: fd, buf: r.buf}
		return r
	}
	return &dirReader{fd: fd, buf: make([]byte, direntBytes)}
}

func (d *descent) closeLevel(i int) {
	l := &d.levels[i]
	if l.reader == nil {
		return
	}
	unix.Close(l.reader.fd)
	l.at = l.reader.at
	d.spare = append(d.spare, l.reader)
	l.reader = nil
}

// enter goes into a subdirectory. The error is EXDEV if the subdirectory is on another mount, and ENOTDIR or ELOOP if name is not a
// directory.
func (d *descent) enter(name string) error {
	if len(d.levels) >= d.host.levelLimit() {
		return ErrTooDeep
	}
	fd, err := d.host.openDirOn(d.fd(), name, d.mount)
	if err != nil {
		return err
	}
	return d.push(fd)
}

func (h Host) levelLimit() int {
	if h.maxLevels > 0 {
		return h.maxLevels
	}
	return maxLevels
}

// leave goes to the directory above. Reading continues there after the entry that it left (or, after unread, with that entry). It must
// not be called at the top.
func (d *descent) leave() error {
	n := len(d.levels) - 1
	up := &d.levels[n-1]
	if up.reader == nil {
		fd, err := d.host.openDirOn(d.fd(), "..", d.mount)
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) {
			return ErrMoved
		}
		if err != nil {
			return err
		}
		if err := d.sameDir(fd, up); err != nil {
			unix.Close(fd)
			return err
		}
		if _, err := unix.Seek(fd, up.at, 0); err != nil {
			unix.Close(fd)
			return err
		}
		at := up.at
		up.reader = d.newReader(fd)
		up.reader.at, up.reader.lastAt = at, at
	}
	d.closeLevel(n)
	d.levels = d.levels[:n]
	return nil
}

// sameDir returns ErrMoved if the open directory is not the one that the level describes.
func (d *descent) sameDir(fd int, l *level) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Dev != l.dev || st.Ino != l.ino || d.handleOf(fd) != l.handle {
		return ErrMoved
	}
	return nil
}

// handleOf returns a hash of the file handle of an open directory; 0 if the file system has no file handles. A handle contains the
// generation of the inode, which differs between two directories that had the same number one after the other.
func (d *descent) handleOf(fd int) uint64 {
	handle, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return 0
	}
	return maphash.Bytes(d.seed, handle.Bytes())
}

// restart goes back to the top and reads it from its beginning.
func (d *descent) restart() error {
	for len(d.levels) > 1 {
		d.closeLevel(len(d.levels) - 1)
		d.levels = d.levels[:len(d.levels)-1]
	}
	return d.rewind()
}

// rewind makes next read the current directory from its beginning again.
func (d *descent) rewind() error {
	r := d.here().reader
	*r = dirReader{fd: r.fd, buf: r.buf}
	_, err := unix.Seek(r.fd, 0, 0)
	return err
}

// next returns the next entry of the current directory, without "." and "..". It returns false after the last entry.
func (d *descent) next() (dirEntry, bool, error) {
	r := d.here().reader
	for {
		if r.pos >= r.n {
			n, err := unix.Getdents(r.fd, r.buf)
			for errors.Is(err, unix.EINTR) {
				n, err = unix.Getdents(r.fd, r.buf)
			}
			if errors.Is(err, unix.ENOENT) { // the directory itself was removed
				return dirEntry{}, false, nil
			}
			if err != nil || n <= 0 {
				return dirEntry{}, false, err
			}
			r.n, r.pos, r.last = n, 0, 0
		}
		e, ok := r.parse()
		if !ok {
			return dirEntry{}, false, fmt.Errorf("read directory: the kernel's answer is not understood: %w", unix.EBADMSG)
		}
		if string(e.name) != "." && string(e.name) != ".." {
			return e, true, nil
		}
	}
}

// unread makes next return the last entry again, even if the directory is closed and reopened before that.
func (d *descent) unread() {
	r := d.here().reader
	r.pos, r.at = r.last, r.lastAt
}

// parse reads one linux_dirent64: inode, offset of the next, length, type, name.
func (r *dirReader) parse() (dirEntry, bool) {
	const nameAt = 19
	b := r.buf[r.pos:r.n]
	if len(b) < nameAt {
		return dirEntry{}, false
	}
	size := int(binary.NativeEndian.Uint16(b[16:]))
	if size < nameAt || size > len(b) {
		return dirEntry{}, false
	}
	name := b[nameAt:size]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	r.last, r.lastAt = r.pos, r.at
	r.pos += size
	r.at = int64(binary.NativeEndian.Uint64(b[8:]))
	return dirEntry{name: name, kind: b[18]}, true
}

// position returns the current path, for messages, or the depth if the path is too long.
func (d *descent) position(top string) string {
	const most = 512
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(d.fd()))
	if err != nil || len(path) > most {
		return fmt.Sprintf("%s (%d levels down)", top, len(d.levels)-1)
	}
	return path
}

// openDirOn opens the directory name below the open directory at, and follows no link. It returns EXDEV if the two are on different mounts.
// Bind mounts of the same file system count as different mounts. The kernel checks this when it opens the directory. Without openat2,
// openDirOn compares the ID of the opened directory's mount with mount, the ID of the mount of at.
func (h Host) openDirOn(at int, name string, mount int) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if !h.noOpenat2 {
		how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(at, name, &how)
		for try := 0; (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) && try < 100; try++ {
			fd, err = unix.Openat2(at, name, &how)
		}
		if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return fd, err
		}
		var here error
		if mount, here = mountID(at); here != nil {
			return -1, here
		}
	}
	fd, err := unix.Openat(at, name, flags, 0)
	if err != nil {
		return -1, err
	}
	there, err := mountID(fd)
	if err == nil && there != mount {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// mountID returns the mount through which a descriptor was opened.
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
