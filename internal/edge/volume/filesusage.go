package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// These limit a termination message file, in bytes on disk. The agent reads only the last 4 KiB of the file, so no message is lost
// when the beginning is removed.
const (
	// maxMessage is the size above which a file is cut.
	maxMessage = 1 << 20
	// keptMessage is how many bytes of the end are kept.
	keptMessage = 64 << 10
)

// FilesUsage is the disk space of the files that the agent itself makes for the containers of a pod. It counts allocated blocks, so the
// holes of a sparse file do not count.
type FilesUsage struct {
	// Hosts is the size of the hosts file.
	Hosts uint64
	// Messages holds, for each container, the size of its termination message files before any cut.
	Messages map[string]uint64
	Inodes   uint64
}

// Bytes returns the sum of all sizes.
func (u *FilesUsage) Bytes() uint64 {
	sum := u.Hosts
	for _, m := range u.Messages {
		sum += m
	}
	return sum
}

// FilesUsage measures the hosts file and the termination messages of a pod. It reads a few file sizes and walks no
// volume.
func (v *Volumes) FilesUsage(uid types.UID) (FilesUsage, error) {
	return v.filesUsage(uid, func(string, uint64) error { return nil })
}

// BoundFiles measures the same files as FilesUsage, and cuts termination message files that are too large. It never cuts the hosts
// file, because a running container needs its beginning.
func (v *Volumes) BoundFiles(uid types.UID) (FilesUsage, error) {
	return v.filesUsage(uid, func(path string, size uint64) error {
		if size <= maxMessage {
			return nil
		}
		if err := dropFront(path, keptMessage); err != nil {
			return fmt.Errorf("cut back termination message %s: %w", path, err)
		}
		return nil
	})
}

func (v *Volumes) filesUsage(uid types.UID, message func(path string, size uint64) error) (FilesUsage, error) {
	if err := checkName("pod UID", string(uid)); err != nil {
		return FilesUsage{}, err
	}
	u := FilesUsage{Messages: map[string]uint64{}}
	var errs []error
	hosts, err := blocks(v.layout.hosts(uid))
	switch {
	case err == nil:
		u.Hosts, u.Inodes = hosts, 1
	case !errors.Is(err, fs.ErrNotExist):
		errs = append(errs, fmt.Errorf("measure hosts file: %w", err))
	}
	dirs, err := readDir(v.layout.containers(uid))
	errs = append(errs, err)
	for _, dir := range dirs {
		at := filepath.Join(v.layout.containers(uid), dir.Name())
		files, err := readDir(at)
		errs = append(errs, err)
		for _, f := range files {
			path := filepath.Join(at, f.Name())
			size, err := blocks(path)
			if errors.Is(err, fs.ErrNotExist) { // messageFile has removed the file in the meantime
				continue
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("measure termination message: %w", err))
				continue
			}
			u.Messages[dir.Name()] += size
			u.Inodes++
			errs = append(errs, message(path, size))
		}
	}
	return u, errors.Join(errs...)
}

// readDir lists a directory that only the agent writes to. A missing directory counts as empty.
func readDir(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list container directories: %w", err)
	}
	return entries, nil
}

// blocks returns the bytes that a file takes on disk. It follows no link.
func blocks(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return uint64(st.Blocks) * 512, nil
}

// dropFront frees the disk space of a file except its last keep bytes. The file keeps its length, so a container that writes to
// it continues at the same position, and no write is lost.
func dropFront(path string, keep int64) error {
	f, err := hostfs.OpenUntrustedToWrite(path, 1)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	const page = 4096
	end := (st.Size() - keep) / page * page
	if end <= 0 {
		return nil
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, end)
}
