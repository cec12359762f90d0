package vmnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vm"
)

// Attach gives the running guest a disk with these files (name to path), and mounts it in the guest, read-only, at /opt/NAME. After a
// reboot it is not mounted any more, and after a power cut the disk is gone.
func (e *Env) Attach(ctx context.Context, name string, files map[string]string) (err error) {
	dir, image := e.path("disk-"+name), e.path("disk-"+name+".img")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	bytes := int64(0) // of all files
	for as, path := range files {
		to := filepath.Join(dir, as)
		if os.Link(path, to) != nil { // another file system
			if err := copyFile(path, to); err != nil {
				return fmt.Errorf("make the disk %s: %w", name, err)
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		bytes += info.Size()
	}
	if err := vm.FileSystem(ctx, image, dir, name, diskMiB(bytes)); err != nil {
		return err
	}
	if err := e.Machine.AttachDisk(ctx, name, image); err != nil {
		return err
	}
	_, err = e.Machine.Shell(ctx, 5*time.Minute, fmt.Sprintf("mkdir -p /opt/%[1]s; udevadm settle; mount -o ro /dev/disk/by-id/virtio-%[1]s /opt/%[1]s", name))
	return err
}

// diskMiB returns how large the file system, in MiB, has to be for files of so many bytes: it has inodes and a journal, too.
func diskMiB(bytes int64) int { return int(bytes>>20)*9/8 + 64 }
