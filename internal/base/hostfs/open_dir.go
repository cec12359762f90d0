package hostfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// UntrustedDiskUsage measures as DiskUsage does, but for a directory that a container may have made or replaced. None of the last depth
// elements of dir may be a symbolic link (as in OpenUntrusted), because a link in place of a directory could lead to the node's own files.
func (h Host) UntrustedDiskUsage(ctx context.Context, dir string, depth int) (bytes, inodes uint64, err error) {
	pinned, err := pin(dir, depth)
	if err != nil {
		return 0, 0, err
	}
	defer pinned.Close()
	if err := wantType(pinned, fs.ModeDir); err != nil {
		return 0, 0, err
	}
	return h.DiskUsage(ctx, procFD(pinned)+"/.")
}

// listed is the maximum number of a directory's names that are in memory at once.
const listed = 512

// UntrustedDir is an open directory that a container can write to. Its methods stay in this directory even if its path leads
// elsewhere later. They follow no link and never block. Names are names of entries, without a path.
type UntrustedDir struct {
	// root is safe except for its method Open, which follows links to other files of the directory and blocks on pipes.
	root *os.Root
}

// OpenUntrustedDir opens a directory that a container may have made or replaced. None of the last depth elements of path may be a symbolic
// link, as in OpenUntrusted.
func OpenUntrustedDir(path string, depth int) (*UntrustedDir, error) {
	pinned, err := pin(path, depth)
	if err != nil {
		return nil, err
	}
	defer pinned.Close()
	root, err := rootOf(pinned)
	if err != nil {
		return nil, err
	}
	return &UntrustedDir{root}, nil
}

// Close closes the directory.
func (d *UntrustedDir) Close() error { return d.root.Close() }

// Create makes a new file for writing. If there is an entry of that name, even a link, the error is fs.ErrExist.
func (d *UntrustedDir) Create(name string, perm fs.FileMode) (*os.File, error) {
	return d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

// Lstat describes an entry. It does not follow a link.
func (d *UntrustedDir) Lstat(name string) (fs.FileInfo, error) { return d.root.Lstat(name) }

// Readlink returns the target of a link.
func (d *UntrustedDir) Readlink(name string) (string, error) { return d.root.Readlink(name) }

// Remove removes an entry. It does not follow a link.
func (d *UntrustedDir) Remove(name string) error { return d.root.Remove(name) }

// Rename gives an entry another name.
func (d *UntrustedDir) Rename(from, to string) error { return d.root.Rename(from, to) }

// Link gives a file a second name. If the name is taken, the error is fs.ErrExist.
func (d *UntrustedDir) Link(name, second string) error { return d.root.Link(name, second) }

func rootOf(pinned *os.File) (*os.Root, error) {
	if err := wantType(pinned, fs.ModeDir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(procFD(pinned))
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", pinned.Name(), err)
	}
	return root, nil
}

// MakeUntrustedDir makes the missing directories of path. It fails (ErrNotRegular) if one of the last depth elements of path is a link or a
// file.
func MakeUntrustedDir(path string, depth int, perm fs.FileMode) error {
	trusted, names, err := split(path, depth)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(trusted, perm); err != nil {
		return err
	}
	at, err := openRoot(trusted)
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	for i, name := range names {
		if err := unix.Mkdirat(int(at.Fd()), name, uint32(perm.Perm())); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make directory %s: %w", path, err)
		}
		fd, err := openat(int(at.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("make directory %s: %w", path, err)
		}
		at.Close()
		at = os.NewFile(uintptr(fd), filepath.Join(trusted, filepath.Join(names[:i+1]...)))
		if err := wantType(at, fs.ModeDir); err != nil {
			return fmt.Errorf("make directory %s: %w", path, err)
		}
	}
	return nil
}

// Open opens a regular file for reading, like OpenUntrusted.
func (d *UntrustedDir) Open(name string) (*os.File, error) {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return nil, fmt.Errorf("open %q: not the name of a file", name)
	}
	self, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	fd, err := openat(int(self.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	pinned := os.NewFile(uintptr(fd), name)
	defer pinned.Close()
	return OpenPinned(pinned)
}

// Each calls f for each entry, in no order, until f returns an error. It keeps few entries in memory, however many a
// container made.
func (d *UntrustedDir) Each(f func(fs.DirEntry) error) error {
	self, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()
	// A directory that an os.Root opened asks the kernel about each entry, although the kernel told the types with the names. That was most
	// of the work of a search in /var/log/containers.
	fd, err := openat(int(self.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	list := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd)) // under this name Go asks about an entry whose type the file system does not tell
	defer list.Close()
	for {
		entries, err := list.ReadDir(listed)
		for _, e := range entries {
			if err := f(entry{e, d}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// entry is an entry of an UntrustedDir. The Info of the entry that it wraps would follow the path of the directory, which may lead elsewhere
// by now.
type entry struct {
	fs.DirEntry
	dir *UntrustedDir
}

func (e entry) Info() (fs.FileInfo, error) { return e.dir.Lstat(e.Name()) }

// maxShown bounds the listing of a directory by an UntrustedFS.
const maxShown = 10_000

// UntrustedFS returns a file system with the regular files and directories below dir, for a reader who may read all of them. It
// follows links while they stay below dir. Opening anything else is an error (ErrNotRegular, ErrEscapes) and never blocks. A
// directory with more than 10,000 entries cannot be listed.
func UntrustedFS(dir string) fs.FS { return untrustedFS(dir) }

type untrustedFS string

// Open opens a file or directory.
func (dir untrustedFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := dir.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func (dir untrustedFS) open(name string) (fs.File, error) {
	pinned, err := Host{}.OpenBeneath(string(dir), name)
	if err != nil {
		return nil, err
	}
	defer pinned.Close()
	st, err := pinned.Stat()
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return OpenPinned(pinned)
	}
	root, err := rootOf(pinned)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	return shownDir{f}, nil
}

// shownDir is a directory whose listing is bounded.
type shownDir struct{ *os.File }

// ReadDir lists the directory as fs.ReadDirFile describes.
func (d shownDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 {
		return d.File.ReadDir(n)
	}
	entries, err := d.File.ReadDir(maxShown + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && len(entries) > maxShown {
		return nil, fmt.Errorf("list %s: it has more than %d entries: %w", d.Name(), maxShown, ErrTooLarge)
	}
	return entries, err
}
