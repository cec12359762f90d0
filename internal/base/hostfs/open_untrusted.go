package hostfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// These are causes of errors about files that a container controls.
var (
	// ErrNotRegular is the cause if a path has something other than a regular file (or a directory, if one is expected): a link,
	// a named pipe, a device, a socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge is the cause if a file has more bytes than its reader takes.
	ErrTooLarge = errors.New("file is too large")
)

// OpenUntrusted opens a regular file for reading that a container may have made, changed or replaced. It never blocks. It refuses a pipe,
// a device, a socket and a directory (ErrNotRegular) without opening it, because opening can block or start an action of a device. The
// parameter depth is the number of elements at the end of path that a container may have made, so none of them may be a symbolic link.
// The elements before them belong to the node, and links there are followed. For a missing file the error is fs.ErrNotExist.
func OpenUntrusted(path string, depth int) (*os.File, error) {
	pinned, err := pin(path, depth)
	if err != nil {
		return nil, err
	}
	defer pinned.Close()
	return OpenPinned(pinned)
}

// OpenUntrustedToWrite opens a file as OpenUntrusted does, but for writing. It neither makes nor truncates the file.
func OpenUntrustedToWrite(path string, depth int) (*os.File, error) {
	pinned, err := pin(path, depth)
	if err != nil {
		return nil, err
	}
	defer pinned.Close()
	if err := wantType(pinned, 0); err != nil {
		return nil, err
	}
	return reopen(pinned, unix.O_WRONLY)
}

// OpenPinned opens the regular file of an O_PATH descriptor (from Host.OpenBeneath, for example) for reading. The
// descriptor stays open.
func OpenPinned(pinned *os.File) (*os.File, error) {
	if err := wantType(pinned, 0); err != nil {
		return nil, err
	}
	return reopen(pinned, unix.O_RDONLY)
}

// ReadUntrusted opens a file as OpenUntrusted does, and reads the whole file. If the file has more than limit bytes, the error is
// ErrTooLarge; ReadUntrusted reads at most limit+1 bytes.
func ReadUntrusted(path string, depth int, limit int64) ([]byte, error) {
	f, err := OpenUntrusted(path, depth)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadBounded(f, limit)
}

// ReadPinned is like ReadUntrusted, but reads the file of an O_PATH descriptor.
func ReadPinned(pinned *os.File, limit int64) ([]byte, error) {
	f, err := OpenPinned(pinned)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadBounded(f, limit)
}

// ReadUntrustedEnd opens a file as OpenUntrusted does, and reads its last limit bytes, or all of it if it is shorter.
func ReadUntrustedEnd(path string, depth int, limit int64) ([]byte, error) {
	f, err := OpenUntrusted(path, depth)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(limit, st.Size()))
	n, err := f.ReadAt(data, st.Size()-int64(len(data)))
	if err != nil && err != io.EOF { // a container may truncate the file at the same time
		return nil, err
	}
	return data[:n], nil
}

// ReadBounded reads a whole open file. If it has more than limit bytes, the error is ErrTooLarge; ReadBounded reads at most limit+1 bytes.
func ReadBounded(f *os.File, limit int64) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("read %s: it has %d bytes, more than %d: %w", f.Name(), st.Size(), limit, ErrTooLarge)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit { // the file has grown since it was opened
		return nil, fmt.Errorf("read %s: it has more than %d bytes: %w", f.Name(), limit, ErrTooLarge)
	}
	return data, err
}

// OverwriteUntrusted replaces the content of a file that containers have mounted and can write to. It reads nothing. The file
// keeps its inode, so that the containers see the new content, and is never empty in between. Bytes after the content are
// removed.
//
// If path is not a regular file, or the file has a second name (a hard link), then the agent did not make the file and no
// container has it mounted. In this case OverwriteUntrusted removes it and makes a new file, so that nothing is written through a
// symbolic or hard link. Path's directory is trusted.
func OverwriteUntrusted(path string, content []byte, perm fs.FileMode) error {
	f, err := openToOverwrite(path, perm)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(content))); err != nil {
		return err
	}
	return f.Chmod(perm)
}

func openToOverwrite(path string, perm fs.FileMode) (*os.File, error) {
	pinned, err := pin(path, 1)
	if err == nil {
		defer pinned.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(pinned.Fd()), &st); err != nil {
			return nil, fmt.Errorf("stat %s: %w", path, err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1 {
			return reopen(pinned, unix.O_WRONLY)
		}
	}
	if err != nil && !errors.Is(err, ErrNotRegular) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what is in the place of the file: %w", err)
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, perm)
}

// pin walks to path and returns an O_PATH descriptor. None of the last depth elements of path may be a symbolic link.
func pin(path string, depth int) (*os.File, error) {
	trusted, names, err := split(path, depth)
	if err != nil {
		return nil, err
	}
	at, err := openRoot(trusted)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		fd, err := openat(int(at.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
		at.Close()
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		at = os.NewFile(uintptr(fd), filepath.Join(trusted, filepath.Join(names[:i+1]...)))
		if _, isLink, err := readLinkFD(fd); err != nil || isLink {
			defer at.Close()
			if err != nil {
				return nil, fmt.Errorf("open %s: %w", path, err)
			}
			return nil, fmt.Errorf("open %s: %s is a symbolic link: %w", path, at.Name(), ErrNotRegular)
		}
	}
	return at, nil
}

// split separates the last depth elements from path, or all elements if path has fewer.
func split(path string, depth int) (trusted string, names []string, err error) {
	trusted = filepath.Clean(path)
	for len(names) < depth {
		name := filepath.Base(trusted)
		if name == ".." || name == "." || name == "/" {
			break
		}
		names = append([]string{name}, names...)
		trusted = filepath.Dir(trusted)
	}
	if len(names) == 0 && depth > 0 {
		return "", nil, fmt.Errorf("open %q: the path names no file: %w", path, fs.ErrNotExist)
	}
	return trusted, names, nil
}

// wantType returns an error if a file does not have the wanted type: 0 (regular) or fs.ModeDir.
func wantType(f *os.File, want fs.FileMode) error {
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	if st.Mode().Type() == want {
		return nil
	}
	return fmt.Errorf("open %s: it is a %s: %w", f.Name(), typeName(st.Mode().Type()), ErrNotRegular)
}

func typeName(t fs.FileMode) string {
	switch {
	case t == 0:
		return "file"
	case t&fs.ModeDir != 0:
		return "directory"
	case t&fs.ModeSymlink != 0:
		return "symbolic link"
	case t&fs.ModeNamedPipe != 0:
		return "named pipe"
	case t&fs.ModeSocket != 0:
		return "socket"
	case t&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// reopen opens the file of an O_PATH descriptor. It uses O_NONBLOCK because a container that owns the file can hold a lease on it, and a
// blocking open would wait until the lease ends (45 s by default). With O_NONBLOCK, the open fails at once with EAGAIN, and the kernel
// begins to end the lease.
func reopen(pinned *os.File, flags int) (*os.File, error) {
	fd, err := openat(unix.AT_FDCWD, procFD(pinned), flags|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", pinned.Name(), err)
	}
	return os.NewFile(uintptr(fd), pinned.Name()), nil
}

// procFD returns a path under which the kernel opens the file of a descriptor again.
func procFD(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// openat is openat(2), repeated if a signal interrupts it.
func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
