package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrEscapes is the cause if a path below a root leads out of it, by ".." or by a symbolic link.
var ErrEscapes = errors.New("path leads outside of its root")

// maxLinks is how many symbolic links may be followed to resolve one path (the kernel's own limit).
const maxLinks = 40

// OpenBeneath opens path below root and never leaves root, whatever symbolic links or renames a container makes at the same time.
// The result is an O_PATH descriptor, which Bind and Stat can use. Links that stay inside are followed. For an absolute link, or
// a link that leads out of root, the error is ErrEscapes. Root itself is trusted and may be a link.
func (h Host) OpenBeneath(root, path string) (*os.File, error) {
	dir, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return h.openIn(dir, path)
}

// MkdirBeneath makes the missing directories of path below root and opens the last one like OpenBeneath. New
// directories get exactly mode, whatever the umask. Existing ones stay as they are. If a file is in the way, the error
// is ENOTDIR.
func (h Host) MkdirBeneath(root, path string, mode fs.FileMode) (*os.File, error) {
	at, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	done := ""
	for name := range strings.SplitSeq(filepath.Clean(path), "/") {
		if name == ".." || name == "" {
			at.Close()
			return nil, fmt.Errorf("make %q: %w", path, ErrEscapes)
		}
		// Each step begins at the root again, so that a link in the middle of the path can lead anywhere below the
		// root, not only below its parent.
		done = filepath.Join(done, name)
		next, err := h.stepInto(root, done, at, mode)
		at.Close()
		if err != nil {
			return nil, fmt.Errorf("make %q: %w", path, err)
		}
		at = next
	}
	return at, nil
}

// stepInto opens root/path. If that is missing, it first makes it in parent, the directory of root/path.
func (h Host) stepInto(root, path string, parent *os.File, mode fs.FileMode) (*os.File, error) {
	f, err := h.OpenBeneath(root, path)
	if !errors.Is(err, unix.ENOENT) {
		return f, err
	}
	name := filepath.Base(path)
	err = unix.Mkdirat(int(parent.Fd()), name, uint32(mode.Perm()))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	fd, openErr := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if openErr != nil {
		return nil, openErr // usually a dangling link: Mkdirat found the name (EEXIST), but OpenBeneath found nothing (ENOENT)
	}
	f = os.NewFile(uintptr(fd), path)
	if err == nil {
		// The mode is set separately, because the umask applies to Mkdir and belongs to the whole process.
		if err := unix.Fchmod(fd, unixMode(mode)); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

func openRoot(root string) (*os.File, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	return os.NewFile(uintptr(fd), root), nil
}

func (h Host) openIn(dir *os.File, path string) (*os.File, error) {
	if h.noOpenat2 {
		return walkIn(dir, path)
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(int(dir.Fd()), path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case errors.Is(err, unix.EAGAIN) && try < 100: // something was renamed during the call
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM): // an old kernel, or a seccomp filter that hides the call
			return walkIn(dir, path)
		case errors.Is(err, unix.EXDEV):
			return nil, fmt.Errorf("open %q: %w", path, ErrEscapes)
		case errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("open %q: too many symbolic links, or one into /proc: %w", path, err)
		}
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
}

// walkIn resolves path one component at a time with O_NOFOLLOW. It keeps every directory on the way open, so that ".." in a link
// leads back to the directory from which it came, even if a directory has been moved.
func walkIn(root *os.File, path string) (*os.File, error) {
	stack := []int{} // open directories below root
	defer func() {
		for _, fd := range stack {
			unix.Close(fd)
		}
	}()
	top := func() int {
		if len(stack) == 0 {
			return int(root.Fd())
		}
		return stack[len(stack)-1]
	}
	links := 0
	rest := strings.Split(path, "/")
	if strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("open %q: %w", path, ErrEscapes)
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(stack) == 0 {
				return nil, fmt.Errorf("open %q: %w", path, ErrEscapes)
			}
			unix.Close(top())
			stack = stack[:len(stack)-1]
			continue
		}
		fd, err := unix.Openat(top(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %q: %w", path, err)
		}
		target, isLink, err := readLinkFD(fd)
		if err != nil || !isLink {
			stack = append(stack, fd)
			if err != nil {
				return nil, fmt.Errorf("open %q: %w", path, err)
			}
			continue
		}
		unix.Close(fd)
		if links++; links > maxLinks {
			return nil, fmt.Errorf("open %q: %w", path, unix.ELOOP)
		}
		if strings.HasPrefix(target, "/") {
			return nil, fmt.Errorf("open %q: %w", path, ErrEscapes)
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	fd, err := unix.FcntlInt(uintptr(top()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// readLinkFD reads the link of an O_PATH|O_NOFOLLOW descriptor.
func readLinkFD(fd int) (target string, isLink bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, nil
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", false, err
	}
	return string(buf[:n]), true, nil
}
