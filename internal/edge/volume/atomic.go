package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// file is one file of a volume. It belongs to the user UID (negative: root) and to the writer's group.
type file struct {
	Data []byte
	Mode fs.FileMode
	UID  int
}

// The writer uses these names. Readers of a volume may rely on ..data. All names that begin with ".." belong to the writer.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// writer swaps the files of a directory as a whole:
//
//	dir/..2026_01_02_03_04_05.123/a/b   the files
//	dir/..data -> ..2026_01_02...       swapped by one rename
//	dir/a      -> ..data/a              one link per first path element, never changed
//
// A crash at any point leaves ..data with either the old or the new content, and the next write removes the remains of the crash.
type writer struct {
	dir    string
	group  int // the pod's fsGroup; negative: none
	remove func(path string) error
	// inUse reports whether a container has a directory of an earlier data directory mounted as a subPath. Such a data directory stays, so that the container
	// keeps the content with which it started. nil: no container has any.
	inUse func(data string) (bool, error)
	// crash, which only tests set, ends the write before the named step, as a crash would.
	crash func(step string) error
}

// write makes the directory contain, for its readers, exactly the files of the argument files. It also creates the directories in dirs,
// which are mount points of other volumes inside this one. changed reports whether content was written.
func (w *writer) write(files map[string]file, dirs []string) (changed bool, err error) {
	if err := checkFiles(files); err != nil {
		return false, err
	}
	current, err := os.Readlink(filepath.Join(w.dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read %s: %w", dataLink, err)
	}
	inData, inRoot := splitDirs(files, dirs)
	if current == "" || !w.shows(current, files, inData) {
		if current, err = w.swap(current, files, inData); err != nil {
			return false, err
		}
		changed = true
	}
	if err := w.link(files); err != nil {
		return changed, err
	}
	if err := w.unlink(files); err != nil {
		return changed, err
	}
	for _, d := range inRoot { // after unlink, because a file that is gone may have had the same first path element
		if err := os.MkdirAll(filepath.Join(w.dir, d), 0o755); err != nil {
			return changed, fmt.Errorf("make mount point %q: %w", d, err)
		}
	}
	return changed, w.sweep(current)
}

func (w *writer) step(name string) error {
	if w.crash == nil {
		return nil
	}
	return w.crash(name)
}

// swap writes files into a new directory and makes ..data point at it. It first removes the remains of failed writes, so that
// retries do not fill the volume.
func (w *writer) swap(current string, files map[string]file, dirs []string) (string, error) {
	if err := w.sweep(current); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(w.dir, time.Now().UTC().Format("..2006_01_02_15_04_05.*"))
	if err != nil {
		return "", fmt.Errorf("make data directory: %w", err)
	}
	if err := w.fill(fresh, files, dirs); err != nil {
		return "", err
	}
	if err := w.step("link"); err != nil {
		return "", err
	}
	tmp := filepath.Join(w.dir, newDataLink)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("clear %s: %w", newDataLink, err)
	}
	if err := os.Symlink(filepath.Base(fresh), tmp); err != nil {
		return "", fmt.Errorf("link new data: %w", err)
	}
	if err := w.step("rename"); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, filepath.Join(w.dir, dataLink)); err != nil {
		return "", fmt.Errorf("swap data: %w", err)
	}
	return filepath.Base(fresh), w.step("swapped")
}

// fill writes files below root, a directory that readers do not see yet.
func (w *writer) fill(root string, files map[string]file, dirs []string) error {
	if err := w.own(root, 0o755|fs.ModeDir, -1); err != nil {
		return err
	}
	made := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if err := w.mkdirs(root, filepath.Dir(name), made); err != nil {
			return err
		}
		if err := w.step("file " + name); err != nil {
			return err
		}
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, f.Data, f.Mode.Perm()); err != nil {
			return fmt.Errorf("write %q: %w", name, err)
		}
		if err := w.own(path, f.Mode, f.UID); err != nil {
			return err
		}
	}
	for _, d := range dirs {
		if err := w.mkdirs(root, d, made); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) mkdirs(root, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := w.mkdirs(root, filepath.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	path := filepath.Join(root, dir)
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("make directory %q: %w", dir, err)
	}
	return w.own(path, 0o755|fs.ModeDir, -1)
}

// own sets the owner of a new file, then its mode, because a change of the owner may clear bits of the mode.
func (w *writer) own(path string, mode fs.FileMode, uid int) error {
	if uid >= 0 || w.group >= 0 {
		if err := os.Lchown(path, uid, w.group); err != nil {
			return fmt.Errorf("change owner: %w", err)
		}
	}
	if err := os.Chmod(path, w.mode(mode)); err != nil {
		return fmt.Errorf("change mode: %w", err)
	}
	return nil
}

// mode returns the mode for a new file. With an fsGroup, the group may read the file, and a directory gets the setgid bit, so that new
// files in it belong to the group.
func (w *writer) mode(mode fs.FileMode) fs.FileMode {
	if w.group < 0 {
		return mode
	}
	mode |= 0o440
	if mode.IsDir() {
		mode |= 0o110 | fs.ModeSetgid
	}
	return mode
}

// shows reports whether the data directory contains exactly these files, with their owners and modes.
func (w *writer) shows(data string, files map[string]file, dirs []string) bool {
	root := filepath.Join(w.dir, data)
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		f, ok := files[name]
		if !ok || !w.same(path, d, f) {
			return errDiffers
		}
		seen++
		return nil
	})
	if err != nil || seen != len(files) {
		return false
	}
	for _, d := range dirs {
		if _, err := os.Lstat(filepath.Join(root, d)); err != nil {
			return false
		}
	}
	return true
}

var errDiffers = errors.New("content differs")

func (w *writer) same(path string, d fs.DirEntry, f file) bool {
	info, err := d.Info()
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(f.Data)) || info.Mode().Perm() != w.mode(f.Mode).Perm() {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if (f.UID >= 0 && int(st.Uid) != f.UID) || (w.group >= 0 && int(st.Gid) != w.group) {
			return false
		}
	}
	data, err := hostfs.ReadUntrusted(path, 1, info.Size())
	return err == nil && bytes.Equal(data, f.Data)
}

// link makes the links that readers use: one for each first path element, for example dir/a for the file a/b.
func (w *writer) link(files map[string]file) error {
	for _, top := range slices.Sorted(maps.Keys(tops(files))) {
		if err := w.step("name " + top); err != nil {
			return err
		}
		path, target := filepath.Join(w.dir, top), filepath.Join(dataLink, top)
		if have, err := os.Readlink(path); err == nil && have == target {
			continue
		}
		// There may be an old link, or directories that were made for a subPath or for mount points when the key did not exist.
		if err := w.remove(path); err != nil {
			return fmt.Errorf("make way for file %q: %w", top, err)
		}
		if err := os.Symlink(target, path); err != nil {
			return fmt.Errorf("link file %q: %w", top, err)
		}
	}
	return nil
}

// unlink removes the links through which none of these files is reached any more.
func (w *writer) unlink(files map[string]file) error {
	if err := w.step("unlink"); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("read volume directory: %w", err)
	}
	keep := tops(files)
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || keep[e.Name()] || strings.HasPrefix(e.Name(), "..") {
			continue
		}
		path := filepath.Join(w.dir, e.Name())
		if to, _ := os.Readlink(path); !strings.HasPrefix(to, dataLink+"/") {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("clear %q: %w", e.Name(), err)
		}
	}
	return nil
}

// sweep removes all entries whose names belong to the writer, except ..data, the current data directory, and earlier ones that are in use: the remains of
// earlier writes and crashes.
func (w *writer) sweep(current string) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("read volume directory: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") || e.Name() == dataLink || e.Name() == current {
			continue
		}
		path := filepath.Join(w.dir, e.Name())
		if w.inUse != nil && e.IsDir() {
			if used, err := w.inUse(path); err != nil {
				return fmt.Errorf("find out who uses %q: %w", e.Name(), err)
			} else if used {
				continue
			}
		}
		if err := w.remove(path); err != nil {
			return fmt.Errorf("clear %q: %w", e.Name(), err)
		}
	}
	return nil
}

// tops returns the first path element of every file.
func tops(files map[string]file) map[string]bool {
	t := make(map[string]bool, len(files))
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		t[top] = true
	}
	return t
}

// splitDirs divides dirs into two lists. A directory is in inData if a path in files has the same first element, otherwise in inRoot.
// A path that is itself a file needs no directory.
func splitDirs(files map[string]file, dirs []string) (inData, inRoot []string) {
	t := tops(files)
	for _, d := range dirs {
		top, _, _ := strings.Cut(d, "/")
		_, isFile := files[d]
		switch {
		case isFile:
		case t[top]:
			inData = append(inData, d)
		default:
			inRoot = append(inRoot, d)
		}
	}
	return inData, inRoot
}

const (
	maxNameLen = 255
	maxPathLen = 4096
)

// checkFiles refuses paths that leave the volume, paths that the writer itself uses, and a path that is both a file and a directory.
func checkFiles(files map[string]file) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := checkPath(name); err != nil {
			return err
		}
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			if _, ok := files[dir]; ok {
				return fmt.Errorf("path %q is a file and, for %q, also a directory: give one of them another path", dir, name)
			}
		}
	}
	return nil
}

func checkPath(path string) error {
	switch {
	case path == "" || path == ".":
		return fmt.Errorf("invalid path %q: must not be empty", path)
	case strings.HasPrefix(path, "/"):
		return fmt.Errorf("invalid path %q: must be relative to the volume", path)
	case len(path) > maxPathLen:
		return fmt.Errorf("invalid path %.40q...: longer than %d bytes", path, maxPathLen)
	case strings.HasPrefix(path, ".."):
		return fmt.Errorf("invalid path %q: must not start with '..'", path)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("invalid path %q: must not contain a zero byte", path)
	}
	for elem := range strings.SplitSeq(path, "/") {
		if elem == ".." {
			return fmt.Errorf("invalid path %q: must not contain '..'", path)
		}
		if len(elem) > maxNameLen {
			return fmt.Errorf("invalid path %.40q...: a name is longer than %d bytes", path, maxNameLen)
		}
	}
	return nil
}
