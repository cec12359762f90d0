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

// loopTries is how many times AttachLoop tries to take a free loop device, because another program may take the device first.
const loopTries = 8

// AttachLoop attaches a loop device to a block device or file, unless one is attached to this path already. While it is attached, the
// kernel keeps the device: after the device has been unplugged, no other device gets its name.
func (h Host) AttachLoop(path string) error {
	have, err := loopsOf(path)
	if err != nil || len(have) > 0 {
		return err
	}
	readOnly := uint32(0)
	f, err := openDevice(path, unix.O_RDWR)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		readOnly = unix.LO_FLAGS_READ_ONLY
		f, err = openDevice(path, unix.O_RDONLY)
	}
	if err != nil {
		return fmt.Errorf("hold device: %w", err)
	}
	defer f.Close()
	control, err := openDevice("/dev/loop-control", unix.O_RDWR)
	if err != nil {
		return fmt.Errorf("hold device %s: %w (load the kernel module loop)", path, err)
	}
	defer control.Close()
	for range loopTries {
		if err = attachFree(control, f, readOnly); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("attach a loop device to %s: %w", path, err)
	}
	return nil
}

// attachFree attaches the first free loop device to f. The error is unix.EBUSY if another program has taken that device meanwhile.
func attachFree(control, f *os.File, flags uint32) error {
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return err
	}
	loop, err := openDevice(fmt.Sprintf("/dev/loop%d", n), unix.O_RDWR)
	if err != nil {
		return err
	}
	defer loop.Close()
	cfg := unix.LoopConfig{Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: flags}}
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], f.Name())
	return unix.IoctlLoopConfigure(int(loop.Fd()), &cfg)
}

// openDevice opens a path that only the agent controls. It uses O_NONBLOCK, so that the open does not wait for a device.
func openDevice(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// DetachLoop detaches the loop devices that are attached to a path. It is no error if there are none.
func (Host) DetachLoop(path string) error {
	loops, err := loopsOf(path)
	if err != nil {
		return err
	}
	for _, name := range loops {
		loop, err := openDevice("/dev/"+name, unix.O_RDWR)
		if err == nil {
			err = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
			loop.Close()
		}
		if err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: another program has detached it
			return fmt.Errorf("detach loop device %s from %s: %w", name, path, err)
		}
	}
	return nil
}

// loopsOf returns the names of the loop devices that are attached to a path.
func loopsOf(path string) (names []string, err error) {
	real, err := filepath.EvalSymlinks(filepath.Dir(path)) // the kernel shows the file of a loop device with its resolved path
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find loop devices: %w", err)
	}
	real = filepath.Join(real, filepath.Base(path))
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("find loop devices: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.TrimSuffix(string(text), "\n") == real {
			names = append(names, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return names, nil
}

// IsBlockDevice reports whether a path is a block device. It follows links; the path must not belong to a container.
func (Host) IsBlockDevice(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find block device: %w", err)
	}
	return info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice, nil
}
