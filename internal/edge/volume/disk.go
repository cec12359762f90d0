package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// Disk has the directories and the small files in which the agent finds the volumes of drivers again. A path is absolute and clean. Calls may
// be concurrent. The errors are those of package os.
type Disk interface {
	// MkdirAll makes a directory, and those above it that are missing.
	MkdirAll(dir string, mode fs.FileMode) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	// Exists reports whether there is anything at a path. It follows no link.
	Exists(path string) bool
	// Resolve returns a directory as the mount table names it, without links.
	Resolve(dir string) (string, error)
	// ReadFile reads a file of at most maxRecord bytes, and ReplaceFile writes one: a reader sees the old content or the new one.
	ReadFile(path string) ([]byte, error)
	ReplaceFile(path string, data []byte, mode fs.FileMode) error
	// Remove removes a file or an empty directory.
	Remove(path string) error
}

// ownDisk is the disk of this machine. Only the agent writes to the directories at which it is used.
type ownDisk struct{}

var _ Disk = ownDisk{}

func (ownDisk) MkdirAll(dir string, mode fs.FileMode) error { return os.MkdirAll(dir, mode) }
func (ownDisk) ReadDir(dir string) ([]fs.DirEntry, error)   { return os.ReadDir(dir) }
func (ownDisk) Resolve(dir string) (string, error)          { return filepath.EvalSymlinks(dir) }
func (ownDisk) Remove(path string) error                    { return os.Remove(path) }
func (ownDisk) ReadFile(path string) ([]byte, error)        { return hostfs.ReadUntrusted(path, 1, maxRecord) }

func (ownDisk) Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (ownDisk) ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	return hostfs.ReplaceFile(path, data, mode)
}
