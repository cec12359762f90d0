package volume

import (
	"bytes"
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// MemoryDisk is a Disk in memory. The zero value is an empty one.
type MemoryDisk struct {
	mu sync.Mutex
	// files has the content of each file and nil for each directory, by path. The content of a file is never nil, not even if it is empty. The
	// directory / is always there.
	files map[string][]byte
}

var _ Disk = (*MemoryDisk)(nil)

// MkdirAll makes a directory, and those above it that are missing.
func (d *MemoryDisk) MkdirAll(dir string, _ fs.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files == nil {
		d.files = map[string][]byte{}
	}
	var missing []string
	for ; dir != "/"; dir = filepath.Dir(dir) {
		content, there := d.files[dir]
		if there && content != nil {
			return wrong("mkdir", dir, syscall.ENOTDIR)
		}
		if there {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range missing {
		d.files[dir] = nil
	}
	return nil
}

// ReadDir lists a directory.
func (d *MemoryDisk) ReadDir(dir string) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if content, there := d.files[dir]; !there {
		return nil, wrong("open", dir, syscall.ENOENT)
	} else if content != nil {
		return nil, wrong("open", dir, syscall.ENOTDIR)
	}
	var entries []fs.DirEntry
	for path, content := range d.files {
		if filepath.Dir(path) == dir {
			entries = append(entries, memoryEntry{filepath.Base(path), content == nil})
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Exists reports whether there is a file or a directory.
func (d *MemoryDisk) Exists(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, there := d.files[path]
	return there
}

// Resolve returns dir, because there are no links.
func (d *MemoryDisk) Resolve(dir string) (string, error) {
	if !d.Exists(dir) {
		return "", wrong("lstat", dir, syscall.ENOENT)
	}
	return dir, nil
}

// ReadFile returns the content of a file.
func (d *MemoryDisk) ReadFile(path string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch content, there := d.files[path]; {
	case !there:
		return nil, wrong("open", path, syscall.ENOENT)
	case content == nil:
		return nil, wrong("read", path, syscall.EISDIR)
	default:
		return bytes.Clone(content), nil
	}
}

// ReplaceFile writes a file.
func (d *MemoryDisk) ReplaceFile(path string, data []byte, _ fs.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if content, there := d.files[filepath.Dir(path)]; !there || content != nil {
		return wrong("open", path, syscall.ENOENT)
	}
	if content, there := d.files[path]; there && content == nil {
		return wrong("rename", path, syscall.EISDIR)
	}
	d.files[path] = append([]byte{}, data...)
	return nil
}

// Remove removes a file or an empty directory.
func (d *MemoryDisk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.files[path]; !there {
		return wrong("remove", path, syscall.ENOENT)
	}
	for other := range d.files {
		if filepath.Dir(other) == path {
			return wrong("remove", path, syscall.ENOTEMPTY)
		}
	}
	delete(d.files, path)
	return nil
}

// removeTree removes dir and all below it.
func (d *MemoryDisk) removeTree(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path := range d.files {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			delete(d.files, path)
		}
	}
}

func wrong(op, path string, errno syscall.Errno) error {
	return &fs.PathError{Op: op, Path: path, Err: errno}
}

// memoryEntry is an entry of a directory of a MemoryDisk.
type memoryEntry struct {
	name string
	dir  bool
}

func (e memoryEntry) Name() string               { return e.name }
func (e memoryEntry) IsDir() bool                { return e.dir }
func (e memoryEntry) Info() (fs.FileInfo, error) { return memoryInfo{e}, nil }

func (e memoryEntry) Type() fs.FileMode {
	if e.dir {
		return fs.ModeDir
	}
	return 0
}

// memoryInfo is what a MemoryDisk knows about an entry: its name and its type.
type memoryInfo struct{ memoryEntry }

func (i memoryInfo) Size() int64        { return 0 }
func (i memoryInfo) Mode() fs.FileMode  { return i.Type() }
func (i memoryInfo) ModTime() time.Time { return time.Time{} }
func (i memoryInfo) Sys() any           { return nil }
