package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// newAttached returns a fixture with volume d, which is attached to the node. Whenever the volumes that are in use change, the Node's
// status lists them.
func newAttached(t *testing.T) *csiFixture {
	t.Helper()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	f.claims.drivers[driverName].Spec.AttachRequired = nil
	f.claims.attachments[csispec.Attachment("disk-d", driverName, "n")] = &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	name := csispec.UniqueName(driverName, "disk-d")
	f.claims.node.Status.VolumesAttached = []v1.AttachedVolume{{Name: name}}
	f.claims.node.Status.VolumesInUse = []v1.UniqueVolumeName{name}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for {
			select {
			case <-f.changed:
				names, _ := f.InUse()
				f.Reported(names)
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// end takes down and removes a pod. It does not unstage the pod's volumes.
func (f *csiFixture) end(t *testing.T, p *v1.Pod) {
	t.Helper()
	if err := errors.Join(f.fixture.TearDown(t.Context(), pod.RefOf(p)), f.Remove(t.Context(), pod.RefOf(p))); err != nil {
		t.Fatalf("the end of pod %s: %v", p.Name, err)
	}
}

// wantStaged checks whether volume d is staged, and that it is in use exactly if it is.
func (f *csiFixture) wantStaged(t *testing.T, when string, want bool) {
	t.Helper()
	if staged, published := f.driver.Holds(); (staged == 1) != want || published != 0 {
		t.Errorf("%s: %d staged and %d published volumes", when, staged, published)
	}
	if names, ok := f.InUse(); !ok || slices.Contains(names, csispec.UniqueName(driverName, "disk-d")) != want {
		t.Errorf("%s: in use: %v, %v", when, names, ok)
	}
}

var errBusy = status.Error(codes.Internal, "the disk is busy")

// A pod ends although the driver cannot unstage its volume. The volume stays in use, the Node has one event, and the next pod gets the volume,
// which is staged again. The driver is asked again after that pod has ended.
func TestPodEndsBeforeItsVolumeIsUnstaged(t *testing.T) {
	t.Parallel()
	f := newAttached(t)
	p := podOf("a", claim("v", "d", false))
	setUp(t, f.fixture, p)
	f.driver.SetFault("NodeUnstageVolume", &simcsi.Fault{Err: errBusy})
	f.end(t, p)
	f.wantStaged(t, "after the end of the pod", true)
	for range 3 {
		if err := f.UnstageUnused(t.Context()); err == nil || !strings.Contains(err.Error(), "NodeUnstageVolume: the disk is busy") {
			t.Errorf("the attempt to unstage the volume: %v", err)
		}
	}
	f.wantStaged(t, "after three attempts", true)
	if told := f.events(); !slices.Equal(told, []string{"Node n FailedUnstageVolume"}) {
		t.Errorf("events: %q", told)
	}
	p = podOf("b", claim("v", "d", false))
	setUp(t, f.fixture, p)
	if n := f.driver.Count("NodeStageVolume"); n != 2 {
		t.Errorf("staged %d times, want 2: the driver may have unstaged the volume in part", n)
	}
	calls := f.driver.Count("NodeUnstageVolume")
	if err := f.UnstageUnused(t.Context()); err != nil || f.driver.Count("NodeUnstageVolume") != calls {
		t.Errorf("an attempt while a pod uses the volume: %v, and %d calls, want %d", err, f.driver.Count("NodeUnstageVolume"), calls)
	}
	f.driver.SetFault("NodeUnstageVolume", nil)
	f.end(t, p)
	f.wantStaged(t, "after the end of the next pod", true)
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Error(err)
	}
	f.wantStaged(t, "at the end", false)
}

// An agent finds a volume that the agent before it has left staged, and unstages it.
func TestNextAgentUnstagesAVolume(t *testing.T) {
	t.Parallel()
	f := newAttached(t)
	p := podOf("a", claim("v", "d", false))
	setUp(t, f.fixture, p)
	f.end(t, p)
	f.Volumes = f.restart()
	f.wantStaged(t, "after a restart", true)
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Error(err)
	}
	f.wantStaged(t, "at the end", false)
}

// The agent unstages a volume as soon as its driver has registered.
func TestVolumeIsUnstagedWhenItsDriverIsBack(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{false, true} {
		f := newCSI(t, simcsi.Config{Stage: true})
		p := podOf("a", claim("v", "d", false))
		if block {
			f.blockDisk(t, "d")
			raw(p, "v")
		} else {
			f.disk("d", v1.ReadWriteOnce)
		}
		setUp(t, f.fixture, p)
		f.end(t, p)
		f.Volumes = f.restart()
		back := f.away()
		if err := f.UnstageUnused(t.Context()); err == nil || !strings.Contains(err.Error(), "waits for the driver to register") {
			t.Errorf("block %v: the attempt while the driver is away: %v", block, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		join := f.Begin(ctx)
		back()
		want := "kubernetes.io/csi:" + driverName + map[bool]string{false: " unmount_device success", true: " unmap_device success"}[block]
		f.await(t, func() bool { return slices.Contains(f.ops.take(), want) })
		cancel()
		join()
		if staged, _ := f.driver.Holds(); staged != 0 {
			t.Errorf("block %v: the volume is staged", block)
		}
		for _, dir := range []string{driverName + "/*", "volumeDevices/*/pv-d", "volumeDevices/pv-d"} {
			if left, _ := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi", dir)); len(left) != 0 {
				t.Errorf("block %v: left: %v", block, left)
			}
		}
	}
}

// The directory of a staged volume may have any content, because a driver can write there. The agent leaves alone what it does not know, and unstages
// the other volumes.
func TestStagedVolumeWithoutValidData(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	p := podOf("a", claim("v", "d", false))
	setUp(t, f.fixture, p)
	f.end(t, p)
	base := filepath.Join(f.root, "plugins/kubernetes.io/csi")
	for dir, data := range map[string]string{
		driverName + "/empty":               "",
		driverName + "/no-json":             "{",
		driverName + "/other":               `{"driverName": "` + driverName + `", "volumeHandle": "disk-d"}`,
		driverName + "/up":                  `{"driverName": "../..", "volumeHandle": "x"}`,
		driverName + "/huge":                `{"volumeHandle": "` + strings.Repeat("x", 1<<20) + `"}`,
		"pv/pv-d":                           `{"driverName": "` + driverName + `", "volumeHandle": "disk-d"}`,
		"volumeDevices/pv-e/data":           `[]`,
		"volumeDevices/staging/pv-f":        "x",
		driverName + "/deep/vol_data.json/": "x",
	} {
		dir = filepath.Join(base, dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	f.Volumes = f.restart()
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Error(err)
	}
	if staged, _ := f.driver.Holds(); staged != 0 || f.driver.Count("NodeUnstageVolume") != 1 {
		t.Errorf("%d volumes are staged, after %d calls to unstage one", staged, f.driver.Count("NodeUnstageVolume"))
	}
	if left, _ := filepath.Glob(filepath.Join(base, driverName, "*")); len(left) != 6 {
		t.Errorf("left: %v", left)
	}
}
