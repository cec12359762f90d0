package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	xfsVolume = &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	blockDevice = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}, AccessMode: xfsVolume.AccessMode}
)

const mebi = 1 << 20

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("error %v, want the code %s", err, want)
	}
}

func ok[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// needLoopDevices skips the test where it cannot mount files.
func needLoopDevices(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, program := range []string{"losetup", "mkfs.xfs", "xfs_growfs", "mkfs.ext4", "e2fsck", "resize2fs", "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip(err)
	}
}

// The controller makes a volume once, attaches it to one node at a time, makes it larger and never smaller, and deletes it only when it is
// detached. Each call may be repeated.
func TestController(t *testing.T) {
	t.Parallel()
	c := &controller{store: store{dir: t.TempDir(), kind: disk}}
	create := func(name string, least, most int64, capability *csi.VolumeCapability) (*csi.CreateVolumeResponse, error) {
		return c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: least, LimitBytes: most},
			VolumeCapabilities: []*csi.VolumeCapability{capability}})
	}
	for range 2 {
		if v := ok[*csi.CreateVolumeResponse](t)(create("v", 320*mebi, 0, xfsVolume)).Volume; v.VolumeId != "v" || v.CapacityBytes != 320*mebi {
			t.Errorf("volume %v", v)
		}
	}
	_, err := create("v", 400*mebi, 0, xfsVolume)
	wantCode(t, err, codes.AlreadyExists)
	_, err = create("v", 320*mebi, 0, blockDevice)
	wantCode(t, err, codes.AlreadyExists)
	_, err = create("w", 1, 2, xfsVolume)
	wantCode(t, err, codes.OutOfRange)
	for _, name := range []string{"", "..", "a/b", ".hidden"} {
		_, err = create(name, 1, 0, xfsVolume)
		wantCode(t, err, codes.InvalidArgument)
	}
	_, err = create("w", 1, 0, &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER}})
	wantCode(t, err, codes.InvalidArgument)

	attach := func(node string) (*csi.ControllerPublishVolumeResponse, error) {
		return c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: node})
	}
	for range 2 {
		ok[*csi.ControllerPublishVolumeResponse](t)(attach("a"))
	}
	_, err = attach("b")
	wantCode(t, err, codes.FailedPrecondition)
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "v"})
	wantCode(t, err, codes.FailedPrecondition)
	for _, least := range []int64{640 * mebi, 400 * mebi} {
		r := ok[*csi.ControllerExpandVolumeResponse](t)(c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: least}}))
		if r.CapacityBytes != 640*mebi || !r.NodeExpansionRequired {
			t.Errorf("expanded: %v", r)
		}
	}
	if st, err := os.Stat(c.store.image("v")); err != nil || st.Size() != 640*mebi {
		t.Errorf("the image: %v, %v", st, err)
	}
	for _, node := range []string{"b", "a", "a"} { // it is not attached to b, and only once to a
		ok[*csi.ControllerUnpublishVolumeResponse](t)(c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: node}))
	}
	for range 2 {
		ok[*csi.DeleteVolumeResponse](t)(c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "v"}))
	}
	if left, _ := os.ReadDir(c.store.dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A volume keeps its data when it moves from node to node, and its file system grows while it is mounted. A node refuses a volume that is
// attached to another one.
func TestVolumeGrowsAndMoves(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	ctx, s := t.Context(), store{dir: t.TempDir(), kind: disk}
	c := &controller{store: s}
	ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{xfsVolume}}))
	for i, node := range []string{"a", "b"} {
		d := &nodeService{store: s, node: node}
		staging, target := filepath.Join(t.TempDir(), "staging"), filepath.Join(t.TempDir(), "target")
		stage := &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: staging, VolumeCapability: xfsVolume}
		_, err := d.NodeStageVolume(ctx, stage)
		wantCode(t, err, codes.FailedPrecondition)
		stage.PublishContext = ok[*csi.ControllerPublishVolumeResponse](t)(c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: node})).PublishContext
		publish := &csi.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: staging, TargetPath: target, VolumeCapability: xfsVolume}
		_, err = d.NodePublishVolume(ctx, publish)
		wantCode(t, err, codes.FailedPrecondition) // not staged
		t.Cleanup(func() { _ = unmount(target); _ = unmount(staging); _ = d.detach(context.Background(), "v") })
		for range 2 {
			ok[*csi.NodeStageVolumeResponse](t)(d.NodeStageVolume(ctx, stage))
			ok[*csi.NodePublishVolumeResponse](t)(d.NodePublishVolume(ctx, publish))
		}
		size := func() int64 {
			return ok[*csi.NodeGetVolumeStatsResponse](t)(d.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: target})).Usage[0].Total
		}
		before, file := size(), filepath.Join(target, "file")
		if i == 0 {
			if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			ok[*csi.ControllerExpandVolumeResponse](t)(c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 640 * mebi}}))
			ok[*csi.NodeExpandVolumeResponse](t)(d.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: target}))
			if after := size(); before > 300*mebi || after < 500*mebi {
				t.Errorf("the file system has %d bytes before and %d after it has grown to 640 MiB", before, after)
			}
		} else if before < 500*mebi {
			t.Errorf("on the other node the file system has %d bytes", before)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
			t.Errorf("on node %s: %q, %v", node, text, err)
		}
		for range 2 {
			ok[*csi.NodeUnpublishVolumeResponse](t)(d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}))
			ok[*csi.NodeUnstageVolumeResponse](t)(d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: staging}))
		}
		ok[*csi.ControllerUnpublishVolumeResponse](t)(c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: node}))
	}
	ok[*csi.DeleteVolumeResponse](t)(c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "v"}))
}
