package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// A Fibre Channel disk is found by the port names of its targets or by its own identifier. If the machine does not see it yet, the kernel looks for it.
func TestFibreChannel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		src  v1.FCVolumeSource
		link [2]string
		disk string // its directory
		name string // for the attach-detach controller
	}{
		"by port":       {v1.FCVolumeSource{TargetWWNs: []string{"500A0982991b8dc5", "500a0982991b8dc6"}, Lun: ptr(int32(2))}, [2]string{"by-path", "pci-0000:41:00.0-fc-0x500a0982991b8dc5-lun-2"}, "500A0982991b8dc5-500a0982991b8dc6-lun-2", "[500A0982991b8dc5 500a0982991b8dc6]:2"},
		"by identifier": {v1.FCVolumeSource{WWIDs: []string{"VENDOR 36005"}}, [2]string{"by-id", "scsi-VENDOR_36005"}, "VENDOR_36005", "[VENDOR 36005]"},
		"by an identifier with '-', beside one that the machine does not see": {v1.FCVolumeSource{WWIDs: []string{"absent", "VENDOR-36-005"}}, [2]string{"by-id", "scsi-VENDOR-36-005"}, "absent-VENDOR-36-005", "[absent VENDOR-36-005]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			device := emptyDisk(t)
			h := &sanHost{scanned: map[string]map[string]string{tt.link[0]: {tt.link[1]: device, tt.link[1] + "0": "/dev/sdz", "x" + tt.link[1]: "/dev/sdz"}}}
			f := newSAN(t, h)
			p := aPod(vol("v", v1.VolumeSource{FC: &tt.src}))
			setUp(t, f, p)
			if mounted, err := host(t).Mounted(filepath.Join(f.root, "plugins/kubernetes.io/fc", tt.disk)); !mounted || err != nil {
				t.Errorf("not mounted: %v", err)
			}
			if names, _ := f.InUse(); !slices.Equal(names, []v1.UniqueVolumeName{v1.UniqueVolumeName("kubernetes.io/fc/" + tt.name)}) {
				t.Errorf("in use: %v", names)
			}
			if err := os.RemoveAll(filepath.Join(f.root, "pods/uid-1/claims")); err != nil { // as upstream's kubelet leaves it
				t.Fatal(err)
			}
			f.down(t, "uid-1")
			if !slices.Equal(h.removed, []string{device}) {
				t.Errorf("removed disks: %v", h.removed)
			}
			f.nothingLeft(t, h)
		})
	}
}

// A disk that is found by its identifier has several paths: the link to it leads to the device of multipathd. At the end, that device is taken apart, and
// the paths are removed, each of them once, also if one of them is busy at first.
func TestFibreChannelDiskWithSeveralPaths(t *testing.T) {
	t.Parallel()
	device := emptyDisk(t)
	h := &sanHost{
		links: map[string]map[string]string{"by-id": {"scsi-36005": device}}, multipath: map[string]string{"/dev/sdx": device, "/dev/sdy": device},
		busy: map[string]bool{"/dev/sdy": true},
	}
	f := newSAN(t, h)
	setUp(t, f, aPod(vol("v", v1.VolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"36005"}}})))
	f.leave(t, "uid-1")
	if err := f.UnstageUnused(t.Context()); !errors.Is(err, hostfs.ErrDiskBusy) {
		t.Errorf("error %v", err)
	}
	if got := h.commands(); !slices.Equal(got, []string{"multipath -f " + device}) {
		t.Errorf("commands: %q", got)
	}
	h.busy, h.ids = nil, map[string]string{"/dev/sdx": "naa.2"} // another disk has got the name
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Error(err)
	}
	if !slices.Equal(h.removed, []string{"/dev/sdx", "/dev/sdy"}) {
		t.Errorf("removed disks: %v", h.removed)
	}
	f.nothingLeft(t, h)
}

// The node removes the device that was mounted, or which a pod had as a device, whatever the links in /dev/disk are at the end.
func TestFibreChannelDiskWithoutLinks(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{false, true} {
		device := emptyDisk(t)
		h := &sanHost{links: map[string]map[string]string{"by-id": {"scsi-VENDOR-36-005": device}}, busy: map[string]bool{device: true}}
		f := newSAN(t, h)
		pv := f.claims.bind("c", v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"VENDOR-36-005"}}})
		p := claimPod("uid-1", "c")
		if block {
			pv.Spec.VolumeMode = ptr(v1.PersistentVolumeBlock)
			p = raw(p, "v")
		}
		setUp(t, f, p)
		h.links = map[string]map[string]string{"by-id": {"scsi-36": "/dev/sdz"}}
		f.leave(t, "uid-1")
		if err := f.UnstageUnused(t.Context()); !errors.Is(err, hostfs.ErrDiskBusy) {
			t.Errorf("block %v: error %v", block, err)
		}
		h.busy = nil
		if err := f.UnstageUnused(t.Context()); err != nil {
			t.Errorf("block %v: %v", block, err)
		}
		if !slices.Equal(h.removed, []string{device}) {
			t.Errorf("block %v: removed disks: %v", block, h.removed)
		}
		f.nothingLeft(t, h)
	}
}

// The agent before this one has unmounted a disk, and not removed it. This one finds the disk by its links, unless they lead to different disks.
func TestFibreChannelDiskOfAnEarlierAgent(t *testing.T) {
	t.Parallel()
	h := &sanHost{
		links: map[string]map[string]string{"by-id": {"scsi-one-1": "/dev/sdx", "scsi-two": "/dev/sdy", "scsi-one": "/dev/sdz"}},
		ids:   map[string]string{"/dev/sdy": "naa.2", "/dev/sdz": "naa.3"},
	}
	f := newSAN(t, h)
	dir := filepath.Join(f.root, "plugins/kubernetes.io/fc/one-1-two")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := f.UnstageUnused(t.Context()); err == nil || !strings.Contains(err.Error(), "/dev/sdx and /dev/sdy are different disks") {
		t.Errorf("error %v", err)
	}
	if len(h.removed) > 0 {
		t.Errorf("removed disks: %v", h.removed)
	}
	delete(h.ids, "/dev/sdy")
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Error(err)
	}
	if !slices.Equal(h.removed, []string{"/dev/sdx", "/dev/sdy"}) {
		t.Errorf("removed disks: %v", h.removed)
	}
	f.nothingLeft(t, h)
}

func TestFibreChannelVolumesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for want, src := range map[string]v1.FCVolumeSource{
		"names no disk":                       {},
		"names no disk: set targetWWNs":       {TargetWWNs: []string{"500a0982991b8dc5"}},
		"fc.lun -1 must be":                   {TargetWWNs: []string{"500a0982991b8dc5"}, Lun: ptr(int32(-1))},
		"is not the name of a port":           {WWIDs: []string{"../../etc"}},
		"has 1000 names":                      {WWIDs: make([]string, 1000)},
		"is not the directory of a disk":      {WWIDs: []string{".."}},
		"this node has no Fibre Channel port": {WWIDs: []string{"36005"}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			h := &sanHost{}
			f := newSAN(t, h)
			wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: aPod(vol("v", v1.VolumeSource{FC: &src}))}), "v", want)
			f.down(t, "uid-1")
			f.nothingLeft(t, h)
		})
	}
}
