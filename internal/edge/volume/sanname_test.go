package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// A disk stays connected after its last pod, and the agent starts again. What the disk's directory says is not the name that the attach-detach controller
// has. The Node's status still lists this name as in use, so that the controller lets no other node mount the disk.
func TestNameOfADiskOfAnEarlierAgent(t *testing.T) {
	t.Parallel()
	ipv6 := "[2001:db8::1]:3260"
	for name, tt := range map[string]struct {
		src  v1.VolumeSource
		want v1.UniqueVolumeName
	}{
		"a portal without its port":           {v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "192.0.2.1"}}, "kubernetes.io/iscsi/192.0.2.1:" + iqn + ":3"},
		"a portal with its port":              {v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: portal}}, "kubernetes.io/iscsi/" + portal + ":" + iqn + ":3"},
		"an address in brackets":              {v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "[192.0.2.1]"}}, "kubernetes.io/iscsi/[192.0.2.1]:" + iqn + ":3"},
		"an address of IPv6 without its port": {v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "2001:DB8::1"}}, "kubernetes.io/iscsi/2001:DB8::1:" + iqn + ":3"},
		"another port":                        {v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "192.0.2.1:3261"}}, "kubernetes.io/iscsi/192.0.2.1:3261:" + iqn + ":3"},
		"an identifier with ' ' and '-'":      {v1.VolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"VENDOR 36-005"}}}, "kubernetes.io/fc/[VENDOR 36-005]"},
		"port names":                          {v1.VolumeSource{FC: &v1.FCVolumeSource{TargetWWNs: []string{"500a", "500b"}, Lun: ptr(int32(3))}}, "kubernetes.io/fc/[500a 500b]:3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			device := emptyDisk(t)
			units := map[int]string{3: device}
			h := &sanHost{
				portals: map[string]map[int]string{portal: units, ipv6: units, "192.0.2.1:3261": units}, busy: map[string]bool{device: true},
				links: map[string]map[string]string{"by-id": {"scsi-VENDOR_36-005": device}, "by-path": {"fc-0x500a-lun-3": device}},
			}
			f := newSAN(t, h)
			if tt.src.ISCSI != nil {
				tt.src.ISCSI.IQN, tt.src.ISCSI.Lun = iqn, 3
			}
			setUp(t, f, aPod(vol("v", tt.src)))
			f.leave(t, "uid-1")
			if err := f.UnstageUnused(t.Context()); err == nil {
				t.Fatal("the disk is not busy")
			}
			wantInUse := func(when string, want v1.UniqueVolumeName) {
				t.Helper()
				if names, ok := f.InUse(); !ok || !slices.Contains(names, want) {
					t.Errorf("in use %s: %v %v, want %s", when, names, ok, want)
				}
			}
			wantInUse("before the restart", tt.want)
			var known v1.Node
			f.claims.set(func() { known, f.claims.node = f.claims.node, v1.Node{} })
			asked := 0
			f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims, InUseChanged: func() { asked++ }})
			if names, ok := f.InUse(); ok {
				t.Errorf("in use, before the API server has sent the Node: %v", names)
			}
			f.claims.set(func() { f.claims.node = known })
			f.NodeChanged()
			if asked != 1 {
				t.Errorf("told %d times that the volumes in use have changed, when the Node has come", asked)
			}
			wantInUse("after the restart", tt.want)
			f.claims.set(func() {
				f.claims.node.Status.VolumesInUse = nil
				f.claims.node.Status.VolumesAttached = []v1.AttachedVolume{{Name: tt.want}, {Name: "kubernetes.io/fc/[another]"}, {Name: "kubernetes.io/iscsi/192.0.2.1:" + iqn + ":4"}}
			})
			f.NodeChanged()
			wantInUse("when the Node lists the disk as attached only", tt.want)
			if names, _ := f.InUse(); slices.ContainsFunc(f.claims.node.Status.VolumesAttached[1:], func(a v1.AttachedVolume) bool { return slices.Contains(names, a.Name) }) {
				t.Errorf("in use are other disks, too: %v", names)
			}
			h.busy = nil
			if err := f.UnstageUnused(t.Context()); err != nil {
				t.Error(err)
			}
			f.nothingLeft(t, h)
		})
	}
}

// The end of a pod whose volume has no record fails. The record that the agent has made for the next agent says that the name of the disk is guessed.
func TestGuessedNameInARecord(t *testing.T) {
	t.Parallel()
	h := &sanHost{portals: map[string]map[int]string{portal: {3: emptyDisk(t)}}}
	f := newSAN(t, h)
	setUp(t, f, iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3, TargetPortal: portal}))
	records := filepath.Join(f.root, "pods/uid-1/claims")
	if err := os.RemoveAll(records); err != nil { // as upstream's kubelet leaves it
		t.Fatal(err)
	}
	again := func() {
		f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims})
	}
	again()
	h.stuck = errors.New("not now")
	if err := f.TearDown(t.Context(), pod.Ref{UID: "uid-1"}); err == nil {
		t.Error("no error")
	}
	if all, err := os.ReadDir(records); len(all) != 1 {
		t.Errorf("records: %v %v", all, err)
	}
	again()
	if names, ok := f.InUse(); !ok || !slices.Contains(names, "kubernetes.io/iscsi/"+portal+":"+iqn+":3") {
		t.Errorf("in use: %v %v", names, ok)
	}
	const other = "kubernetes.io/iscsi/[192.0.2.1]:" + iqn + ":3" // of another persistent volume on the same disk
	f.claims.set(func() { f.claims.node.Status.VolumesAttached = []v1.AttachedVolume{{Name: other}} })
	f.NodeChanged()
	if names, ok := f.InUse(); !ok || !slices.Contains(names, other) {
		t.Errorf("in use when the Node has changed: %v %v", names, ok)
	}
	h.stuck = nil
	f.down(t, "uid-1")
	f.nothingLeft(t, h)
}
