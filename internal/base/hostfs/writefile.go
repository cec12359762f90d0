package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Unfinished is the suffix of temporary files. A temporary file is left if the process ends during WriteFile or ReplaceFile.
const Unfinished = ".new"

// WriteFile writes data to path, with exactly mode, and waits for the disk, so that not even a power cut loses the file after
// WriteFile has returned. Until then path keeps its old content. It is for directories that only the agent writes to, with one
// writer of a path at a time.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	if err := replace(path, data, mode, true); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// ReplaceFile does the same as WriteFile, but does not wait for the disk and so takes a tenth of the time. After a power cut, the file
// may be old, empty or torn. Use it for files that are checked when they are read, and without which the agent can work.
func ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, false)
}

func replace(path string, data []byte, mode fs.FileMode, sync bool) error {
	tmp := path + Unfinished
	fd, err := unix.Open(tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return &fs.PathError{Op: "open", Path: tmp, Err: err}
	}
	f := os.NewFile(uintptr(fd), tmp)
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // the file gets exactly mode, whatever the umask is
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // the disk may be full, so leave no incomplete file
	}
	return err
}

// SyncDir makes changes of a directory durable: created, renamed and removed files.
func SyncDir(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	err = unix.Fsync(fd)
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
