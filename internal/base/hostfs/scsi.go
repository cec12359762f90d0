package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// ISCSISession is a session of this machine with an iSCSI target.
type ISCSISession struct {
	Portal    string         // address and port of the target: 192.0.2.1:3260 or [2001:db8::1]:3260
	Interface string         // the name that iscsiadm(8) has for the interface of this machine
	Host      int            // number of the SCSI host that the session is for the kernel
	Disks     map[int]string // the paths of the devices, by the number of the logical unit
}

// ErrDiskBusy means that a disk is still mounted, perhaps only in the mount namespace of another process, or is part of another device.
var ErrDiskBusy = errors.New("the disk is still in use, perhaps in the mount namespace of another process (findmnt -N PID shows the mounts of one)")

// isDiskName reports whether a name is one that the kernel gives to a SCSI disk: sda, sdb, ..., sdaa, ...
func isDiskName(name string) bool {
	letters, ok := strings.CutPrefix(name, "sd")
	return ok && letters != "" && strings.Trim(letters, "abcdefghijklmnopqrstuvwxyz") == ""
}

// path returns a path of this machine.
func (h Host) path(path string) string { return Machine{Root: h.root}.path(path) }

// kernelText returns the trimmed text of a file of the kernel, or "" if the file cannot be read.
func kernelText(path string) string { return Machine{}.first(path) }

// ISCSISessions lists the sessions of this machine with an iSCSI target.
func (h Host) ISCSISessions(target string) (all []ISCSISession, err error) {
	dirs, err := filepath.Glob(h.path("sys/class/iscsi_session/session*"))
	if err != nil {
		return nil, fmt.Errorf("list iSCSI sessions: %w", err)
	}
	for _, dir := range dirs {
		if kernelText(filepath.Join(dir, "targetname")) != target {
			continue
		}
		device, err := filepath.EvalSymlinks(filepath.Join(dir, "device")) // .../host2/session1
		if errors.Is(err, fs.ErrNotExist) {                                // the session has just ended
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find iSCSI session: %w", err)
		}
		host, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(device)), "host"))
		if err != nil {
			return nil, fmt.Errorf("the path of an iSCSI session has no number of a SCSI host: %s", device)
		}
		s := ISCSISession{Interface: kernelText(filepath.Join(dir, "ifacename")), Host: host, Disks: disksBelow(device)}
		connections, err := filepath.Glob(filepath.Join(device, "connection*/iscsi_connection/connection*"))
		if err != nil {
			return nil, fmt.Errorf("list connections of an iSCSI session: %w", err)
		}
		for _, c := range connections {
			if address := kernelText(filepath.Join(c, "persistent_address")); address != "" {
				s.Portal = net.JoinHostPort(address, kernelText(filepath.Join(c, "persistent_port")))
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// disksBelow returns the disks of an iSCSI session.
func disksBelow(session string) map[int]string {
	disks := map[int]string{}
	found, err := filepath.Glob(filepath.Join(session, "target*/*:*:*:*/block/*"))
	if err != nil {
		return disks
	}
	for _, path := range found {
		address := filepath.Base(filepath.Dir(filepath.Dir(path))) // host:channel:target:unit
		if unit, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:]); err == nil {
			disks[unit] = "/dev/" + filepath.Base(path)
		}
	}
	return disks
}

// ScanUnit asks the kernel to look for one logical unit of a SCSI host that is an iSCSI session. So the machine does not see the other units
// of the target. The disk may appear later. If the target does not answer, the kernel lets a scan wait for a long time, perhaps for ever.
func (h Host) ScanUnit(host, unit int) error {
	if err := os.WriteFile(h.path(fmt.Sprintf("sys/class/scsi_host/host%d/scan", host)), fmt.Appendf(nil, "0 0 %d", unit), 0); err != nil {
		return fmt.Errorf("scan SCSI host %d: %w", host, err)
	}
	return nil
}

// ScanFibreChannel asks the kernel to look for all disks behind the Fibre Channel ports of this machine. It returns an error if the machine
// has no such port. It may wait, like ScanUnit.
func (h Host) ScanFibreChannel() error {
	ports, err := filepath.Glob(h.path("sys/class/fc_host/host*"))
	if err == nil && len(ports) == 0 {
		err = errors.New("this node has no Fibre Channel port (/sys/class/fc_host is empty)")
	}
	if err != nil {
		return err
	}
	for _, port := range ports {
		if err := os.WriteFile(h.path("sys/class/scsi_host/"+filepath.Base(port)+"/scan"), []byte("- - -"), 0); err != nil {
			return fmt.Errorf("scan Fibre Channel port %s: %w", filepath.Base(port), err)
		}
	}
	return nil
}

// DiskLinks returns the links that udev makes to disks in the directory /dev/disk/<by>: the path of the device by the name of the link. What is
// not a link is left out.
func (h Host) DiskLinks(by string) (map[string]string, error) {
	dir := h.path("dev/disk/" + by)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list links to disks: %w", err)
	}
	links := map[string]string{}
	for _, e := range entries {
		if device, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			links[e.Name()] = "/dev/" + filepath.Base(device)
		}
	}
	return links, nil
}

// DeviceAt returns the device whose file system is mounted at a path, or which is itself bind-mounted there. It returns "" if nothing is mounted there, or a
// file system without a device of its own.
func (h Host) DeviceAt(path string) (device string, err error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("resolve directory of %s: %w", path, err)
	}
	at := filepath.Join(dir, filepath.Base(path))
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != at, false })
	if err != nil {
		return "", fmt.Errorf("read mounts on %s: %w", path, err)
	}
	if len(mounts) == 0 {
		return "", nil
	}
	top := mounts[len(mounts)-1]
	major, minor := uint32(top.Major), uint32(top.Minor)
	var st unix.Stat_t // a device is a file of another file system; the root of a file system is left alone, because its disk may have failed
	if top.Root != "/" && unix.Lstat(at, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		major, minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
	}
	link, err := os.Readlink(h.path(fmt.Sprintf("sys/dev/block/%d:%d", major, minor)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find device at %s: %w", path, err)
	}
	return "/dev/" + filepath.Base(link), nil
}

// MultipathOf returns the device-mapper device that multipathd(8) has made of several paths to the same disk, and the devices of these paths. device is
// one of the paths, or the device-mapper device itself. MultipathOf returns "" if there is none.
func (h Host) MultipathOf(device string) (multipath string, paths []string, err error) {
	dirs, err := filepath.Glob(h.path("sys/block/dm-*/slaves/" + filepath.Base(device)))
	if err != nil {
		return "", nil, fmt.Errorf("find multipath device: %w", err)
	}
	for i := range dirs {
		dirs[i] = filepath.Dir(filepath.Dir(dirs[i]))
	}
	for _, dir := range append(dirs, h.path("sys/block/"+filepath.Base(device))) {
		if !strings.HasPrefix(kernelText(filepath.Join(dir, "dm/uuid")), "mpath-") {
			continue // no device-mapper device, or another kind, for example LVM
		}
		entries, err := os.ReadDir(filepath.Join(dir, "slaves"))
		if err != nil {
			return "", nil, fmt.Errorf("list paths of multipath device: %w", err)
		}
		for _, e := range entries {
			paths = append(paths, "/dev/"+e.Name())
		}
		return "/dev/" + filepath.Base(dir), paths, nil
	}
	return "", nil, nil
}

// DiskID returns the identifier of the SCSI disk to which a device leads, which is the same on each path to the disk; "": there is no such disk, or it has no
// identifier.
func (h Host) DiskID(device string) string {
	return kernelText(h.path("sys/block/" + filepath.Base(device) + "/device/wwid"))
}

// RemoveDisk makes the kernel forget a SCSI disk, after it has written what is in its cache. The error is ErrDiskBusy if something uses the disk. It is no
// error if there is no such disk. If the disk does not answer, RemoveDisk may wait for ever.
func (h Host) RemoveDisk(device string) error {
	name := filepath.Base(device)
	if !isDiskName(name) {
		return fmt.Errorf("remove disk: %q is not the name of a SCSI disk", name)
	}
	disk, err := openDevice(device, unix.O_RDONLY|unix.O_EXCL) // the kernel refuses O_EXCL while the device is mounted anywhere
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove disk %s: %w", device, ErrDiskBusy)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO): // ENXIO: the disk has gone, and its device is still there
	case err != nil:
		return fmt.Errorf("remove disk: %w", err)
	default:
		disk.Close()
	}
	if err := os.WriteFile(h.path("sys/block/"+name+"/device/delete"), []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove disk %s: %w", device, err)
	}
	return nil
}
