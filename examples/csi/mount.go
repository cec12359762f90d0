package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// These are the file systems that the driver makes; xfs if the storage class names none.
const (
	xfs  = "xfs"
	ext4 = "ext4"
)

// mountDevice mounts the file system of a device, which it makes if the device has none. While it makes the file system there is the file half, so that it is
// made again if that was interrupted. The file system of a copy of a smaller volume grows.
func mountDevice(ctx context.Context, device, half, target string, want *csi.VolumeCapability_MountVolume) error {
	fsType := want.GetFsType()
	if fsType == "" {
		fsType = xfs
	}
	has, err := fileSystem(device)
	if err != nil {
		return err
	}
	switch {
	case has == "" || exists(half): // half a file system has no data: it was never mounted
		if err := makeFileSystem(ctx, fsType, device, half); err != nil {
			return err
		}
	case has != fsType:
		return fmt.Errorf("the volume has the file system %s, not %s", has, fsType)
	}
	options := append([]string{"rw"}, want.GetMountFlags()...)
	if fsType == xfs {
		options = append(options, "nouuid") // a copy has the UUID of its source, and both may be mounted at the same time
	}
	readOnly := slices.Contains(options, "ro")
	if fsType == ext4 && !readOnly {
		if err := growUnmounted(ctx, device); err != nil {
			return err
		}
	}
	if _, err := tool(ctx, "mount", "-t", fsType, "-o", strings.Join(options, ","), device, target); err != nil || readOnly || fsType == ext4 {
		return err
	}
	if err := grow(ctx, device, target); err != nil {
		return errors.Join(err, unmount(target)) // otherwise the next call would find the file system mounted, and leave it small
	}
	return nil
}

// makeFileSystem makes a file system on a device, whatever the device has. If it is interrupted, the file half is left.
func makeFileSystem(ctx context.Context, fsType, device, half string) error {
	if err := touch(half); err != nil {
		return err
	}
	force := "-f"
	if fsType == ext4 {
		force = "-F"
	}
	if _, err := tool(ctx, "mkfs."+fsType, "-q", force, device); err != nil {
		return err
	}
	return erase(half) // not only os.Remove: if the file came back after a power cut, the next staging would delete what the pod has written
}

// growUnmounted makes the ext4 of a device as large as the device, before it is mounted: unlike grow, that needs no capability. It repairs the file system
// first, as resize2fs demands.
func growUnmounted(ctx context.Context, device string) error {
	_, err := tool(ctx, "e2fsck", "-f", "-p", device)
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != fsckRepaired) {
		return err
	}
	_, err = tool(ctx, "resize2fs", device)
	return err
}

// fsckRepaired is the exit code with which e2fsck(8) says that it has repaired everything.
const fsckRepaired = 1

// errMounted means that an ext4 cannot grow while it is mounted. The next staging makes it larger.
var errMounted = errors.New("an ext4 grows while it is mounted only if the driver has CAP_SYS_RESOURCE; it grows when the volume is staged again")

// grow makes the file system of a device as large as the device, while it is mounted on path. For ext4 that needs CAP_SYS_RESOURCE, unless
// there is nothing to grow; without it the error is errMounted.
func grow(ctx context.Context, device, path string) error {
	has, err := fileSystem(device)
	switch {
	case err != nil:
	case has == ext4:
		if _, err = tool(ctx, "resize2fs", device); err != nil && strings.Contains(err.Error(), "Permission denied") {
			err = fmt.Errorf("%w: %w", errMounted, err)
		}
	default:
		_, err = tool(ctx, "xfs_growfs", path)
	}
	return err
}

// fileSystem returns the file system that is on a device, by the magic number that begins its superblock; "" if there is none.
func fileSystem(device string) (string, error) {
	f, err := os.Open(device)
	if err != nil {
		return "", err
	}
	defer f.Close()
	begin := make([]byte, 2048)
	if _, err := f.ReadAt(begin, 0); err != nil {
		return "", err
	}
	const superblock, magic = 1024, 56 // of ext4: where it begins, and where its magic number is in it
	switch {
	case bytes.HasPrefix(begin, []byte("XFSB")):
		return xfs, nil
	case binary.LittleEndian.Uint16(begin[superblock+magic:]) == 0xEF53:
		return ext4, nil
	}
	return "", nil
}

// giveGroup makes a directory and everything in it belong to a group, whose members may write, as VOLUME_MOUNT_GROUP says. What is made
// later belongs to the group, too. It does nothing without a group.
func giveGroup(dir, group string) error {
	if group == "" {
		return nil
	}
	gid, err := strconv.Atoi(group)
	if err != nil {
		return fmt.Errorf("volume_mount_group %q is no number of a group", group)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// A pod that uses the volume may put a symbolic link in the place of a file at any moment: nothing outside of dir is changed.
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode() | 0o060
		if entry.IsDir() {
			mode |= fs.ModeSetgid | 0o010
		}
		return errors.Join(root.Lchown(path, -1, gid), root.Chmod(path, mode))
	})
}

// bind mounts source on target, unless something is mounted there.
func bind(source, target string, dir, readOnly bool) error {
	on, err := mounted(target)
	if err != nil || on {
		return err
	}
	if dir {
		err = os.MkdirAll(target, 0o750)
	} else {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount of %s on %s: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// mountsOf returns the paths on which the file system of a loop device, or the device itself, is mounted, except the given ones.
func mountsOf(loop string, except ...string) ([]string, error) {
	var s unix.Stat_t
	if err := unix.Stat(loop, &s); err != nil {
		return nil, fmt.Errorf("look at %s: %w", loop, err)
	}
	major, minor := int(unix.Major(s.Rdev)), int(unix.Minor(s.Rdev))
	found, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		its := m.Major == major && m.Minor == minor || m.FSType == "devtmpfs" && m.Root == "/"+filepath.Base(loop)
		return !its || slices.Contains(except, m.Mountpoint), false
	})
	var paths []string
	for _, m := range found {
		paths = append(paths, m.Mountpoint)
	}
	return paths, err
}

// mounted reports whether something is mounted on a path.
func mounted(path string) (bool, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil { // the mount table has resolved paths
		path = real
	}
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
	return len(found) > 0, err
}

// unmount unmounts what is mounted on a path, if anything is.
func unmount(path string) error {
	on, err := mounted(path)
	if err != nil || !on {
		return err
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// tool runs a program and returns its output. The error has what the program wrote to its standard error.
func tool(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // the errors are in English
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
