package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// sysTree makes files in a directory that replaces /. Paths are those below /sys, but for dev/disk, which is /dev/disk. A content that begins with "-> " makes a link.
func sysTree(t *testing.T, files map[string]string) Host {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		at := filepath.Join(root, "sys", path)
		if strings.HasPrefix(path, "dev/disk/") {
			at = filepath.Join(root, path)
		}
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			must(t, os.Symlink(to, at))
			continue
		}
		must(t, os.WriteFile(at, []byte(content), 0o644))
	}
	return Host{root: root}
}

const iscsiTarget = "iqn.2026-11.com.example:disks"

func TestISCSISessions(t *testing.T) {
	t.Parallel()
	const one, two = "devices/platform/host2/session1/", "devices/platform/host3/session2/"
	h := sysTree(t, map[string]string{
		"class/iscsi_session/session1/targetname": iscsiTarget + "\n", "class/iscsi_session/session1/ifacename": "default\n",
		"class/iscsi_session/session1/device":                                   "-> ../../../" + one,
		one + "connection1:0/iscsi_connection/connection1:0/persistent_address": "192.0.2.1\n", one + "connection1:0/iscsi_connection/connection1:0/persistent_port": "3260\n",
		one + "target2:0:0/2:0:0:0/block/sdb/size": "1\n", one + "target2:0:0/2:0:0:17/block/sdc/size": "1\n", one + "target2:0:0/2:0:0:18/scsi_generic/sg1/dev": "",
		"class/iscsi_session/session2/targetname": iscsiTarget + "\n", "class/iscsi_session/session2/ifacename": "other\n",
		"class/iscsi_session/session2/device":                                   "-> ../../../" + two,
		two + "connection2:0/iscsi_connection/connection2:0/persistent_address": "2001:db8::1\n", two + "connection2:0/iscsi_connection/connection2:0/persistent_port": "3261\n",
		"class/iscsi_session/session3/targetname": "iqn.other\n", "class/iscsi_session/session3/device": "-> ../../../" + two,
		"class/iscsi_session/session4/targetname": iscsiTarget + "\n", "class/iscsi_session/session4/device": "-> ../../../devices/gone",
	})
	got, err := h.ISCSISessions(iscsiTarget)
	want := []ISCSISession{
		{Portal: "192.0.2.1:3260", Interface: "default", Host: 2, Disks: map[int]string{0: "/dev/sdb", 17: "/dev/sdc"}},
		{Portal: "[2001:db8::1]:3261", Interface: "other", Host: 3, Disks: map[int]string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, sessions (-want +got):\n%s", err, diff)
	}
	if got, err := (Host{root: t.TempDir()}).ISCSISessions(iscsiTarget); len(got) > 0 || err != nil {
		t.Errorf("without the kernel module: %v, %v", got, err)
	}
}

func TestScans(t *testing.T) {
	t.Parallel()
	h := sysTree(t, map[string]string{"class/scsi_host/host2/scan": "", "class/scsi_host/host5/scan": "", "class/scsi_host/host6/scan": "", "class/fc_host/host5/port_name": "", "class/fc_host/host6/port_name": ""})
	must(t, h.ScanUnit(2, 17))
	must(t, h.ScanFibreChannel())
	for host, want := range map[string]string{"host2": "0 0 17", "host5": "- - -", "host6": "- - -"} {
		if got := kernelText(h.path("sys/class/scsi_host/" + host + "/scan")); got != want {
			t.Errorf("%s: wrote %q, want %q", host, got, want)
		}
	}
	if err := h.ScanUnit(9, 0); err == nil {
		t.Error("a host that does not exist was scanned")
	}
	if err := (Host{root: t.TempDir()}).ScanFibreChannel(); err == nil || !strings.Contains(err.Error(), "no Fibre Channel port") {
		t.Errorf("error %v", err)
	}
}

func TestDiskLinks(t *testing.T) {
	t.Parallel()
	h := sysTree(t, map[string]string{"dev/disk/by-id/scsi-36005": "-> ../../sdb", "dev/disk/by-id/a-file": "x"})
	if got, err := h.DiskLinks("by-id"); err != nil || !cmp.Equal(got, map[string]string{"scsi-36005": "/dev/sdb"}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := h.DiskLinks("by-path"); err != nil || len(got) > 0 {
		t.Errorf("without the directory: %v, %v", got, err)
	}
}

func TestDeviceAt(t *testing.T) {
	t.Parallel()
	needRoot(t)
	base := t.TempDir()
	dir, node, file := filepath.Join(base, "dir"), filepath.Join(base, "node"), filepath.Join(base, "file")
	must(t, os.Mkdir(dir, 0o755), unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))), os.WriteFile(file, nil, 0o600))
	var st unix.Stat_t
	must(t, unix.Stat(base, &st))
	h := sysTree(t, map[string]string{
		"dev/block/7:200": "-> ../../devices/virtual/block/loop200",
		fmt.Sprintf("dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)): "-> ../../devices/pci/block/sdq",
	})
	want := func(when string, all map[string]string) {
		t.Helper()
		for path, want := range all {
			if got, err := h.DeviceAt(path); got != want || err != nil {
				t.Errorf("%s: %s: %q, %v, want %q", when, path, got, err, want)
			}
		}
	}
	want("before", map[string]string{dir: "", file: "", filepath.Join(base, "none/none"): ""})
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount(node, file, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, h.Unmount(file), h.Unmount(dir)) })
	want("mounted", map[string]string{dir: "/dev/sdq", file: "/dev/loop200", base: ""})
	mountTmpfs(t, h, dir, 0)
	want("with a tmpfs on top", map[string]string{dir: ""})
	must(t, h.Unmount(dir))
}

func TestMultipathOf(t *testing.T) {
	t.Parallel()
	h := sysTree(t, map[string]string{
		"block/dm-0/dm/uuid": "LVM-x\n", "block/dm-0/slaves/sdb": "", "block/dm-1/dm/uuid": "mpath-36005\n", "block/dm-1/slaves/sdc": "", "block/dm-1/slaves/sdd": "",
	})
	for device, want := range map[string]string{"/dev/sdb": "", "/dev/sdc": "/dev/dm-1", "/dev/sdd": "/dev/dm-1", "/dev/sde": "", "/dev/dm-0": "", "/dev/dm-1": "/dev/dm-1", "/dev/dm-2": ""} {
		got, paths, err := h.MultipathOf(device)
		if got != want || err != nil || want != "" && !slices.Equal(paths, []string{"/dev/sdc", "/dev/sdd"}) {
			t.Errorf("%s: %q %v, %v, want %q", device, got, paths, err, want)
		}
	}
}

func TestDiskID(t *testing.T) {
	t.Parallel()
	h := sysTree(t, map[string]string{"block/sdb/device/wwid": "naa.600508b4\n", "block/sdc/device/delete": ""})
	for device, want := range map[string]string{"/dev/sdb": "naa.600508b4", "/dev/sdc": "", "/dev/sdd": "", "": ""} {
		if got := h.DiskID(device); got != want {
			t.Errorf("%s: %q, want %q", device, got, want)
		}
	}
}

func TestRemoveDisk(t *testing.T) {
	t.Parallel()
	h := sysTree(t, map[string]string{"block/sdzzz/device/delete": ""})
	must(t, h.RemoveDisk("/dev/sdzzz")) // there is no such device, but the kernel still has the disk
	if got := kernelText(h.path("sys/block/sdzzz/device/delete")); got != "1" {
		t.Errorf("wrote %q", got)
	}
	must(t, h.RemoveDisk("/dev/sdzzy"))
	for _, name := range []string{"/dev/vda", "/dev/sd", "/dev/sda1", "/dev/../sd*", ""} {
		if err := h.RemoveDisk(name); err == nil {
			t.Errorf("%q was removed", name)
		}
	}
}
