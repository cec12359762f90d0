package volume_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// A driver that says for certain that it did not stage a volume is not asked to unstage it. After any other error it is.
func TestUnstageAfterFailedStage(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]int{codes.InvalidArgument: 0, codes.Internal: 0, codes.DeadlineExceeded: 1, codes.Unavailable: 1} {
		f := newCSI(t, simcsi.Config{Stage: true})
		f.disk("d", v1.ReadWriteOnce).Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "vault", Name: "late"}
		p := podOf("a", claim("v", "d", false))
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "secret vault/late of the volume not found")
		f.claims.secrets["vault/late"] = &v1.Secret{}
		f.driver.SetFault("NodeStageVolume", &simcsi.Fault{Err: status.Error(code, "no")})
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "NodeStageVolume: no")
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Errorf("%s: %v", code, err)
		}
		if n := f.driver.Count("NodeUnstageVolume"); n != want {
			t.Errorf("after %s the driver is asked to unstage %d times, want %d", code, n, want)
		}
		if left, _ := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi", driverName, "*")); len(left) != 0 {
			t.Errorf("%s: left: %v", code, left)
		}
	}
}

// A driver may connect a disk without a mount at the staging path. If it refuses to stage the volume once more, for another pod or when it publishes the
// volume again, it is asked to unstage the volume at the end all the same.
func TestFailedStageOfAVolumeInUse(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		data := t.TempDir()
		f := newCSI(t, simcsi.Config{Stage: true, Mount: func(_, target string) error {
			if filepath.Base(target) == "globalmount" {
				return nil
			}
			return unix.Mount(data, target, "", unix.MS_BIND, "")
		}})
		f.disk("d", v1.ReadWriteMany)
		f.claims.drivers[driverName].Spec.RequiresRepublish = &again
		a, b := podOf("a", claim("v", "d", false)), podOf("b", claim("v", "d", false))
		setUp(t, f.fixture, a)
		f.driver.SetFault("NodeStageVolume", &simcsi.Fault{Err: status.Error(codes.InvalidArgument, "no")})
		if again {
			setUp(t, f.fixture, a)
		} else {
			wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: b}), "v", "NodeStageVolume: no")
		}
		if n := f.driver.Count("NodeStageVolume"); n != 2 {
			t.Errorf("again %v: staged %d times, want 2", again, n)
		}
		for _, p := range []*v1.Pod{b, a} {
			if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
				t.Error(err)
			}
		}
		if staged, _ := f.driver.Holds(); staged != 0 || f.driver.Count("NodeUnstageVolume") != 1 {
			t.Errorf("again %v: the volume is staged, after %d calls to unstage it", again, f.driver.Count("NodeUnstageVolume"))
		}
	}
}

// A volume that an ended pod has left staged stays so in the driver when the driver refuses to stage it for the next pod, also if the driver mounts nothing at
// the staging path. After that pod has ended, the driver is asked to unstage the volume. The agent may have been restarted in between.
func TestFailedStageOfAVolumeThatAPodHasLeft(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		data := t.TempDir()
		f := newCSI(t, simcsi.Config{Stage: true, Mount: func(_, target string) error {
			if filepath.Base(target) == "globalmount" {
				return nil
			}
			return unix.Mount(data, target, "", unix.MS_BIND, "")
		}})
		f.disk("d", v1.ReadWriteOnce)
		a, b := podOf("a", claim("v", "d", false)), podOf("b", claim("v", "d", false))
		setUp(t, f.fixture, a)
		f.driver.SetFault("NodeUnstageVolume", &simcsi.Fault{Err: errBusy})
		f.end(t, a)
		if err := f.UnstageUnused(t.Context()); err == nil {
			t.Error("the volume was unstaged although its disk is busy")
		}
		if restart {
			f.Volumes = f.restart()
		}
		f.driver.SetFault("NodeStageVolume", &simcsi.Fault{Err: status.Error(codes.InvalidArgument, "no")})
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: b}), "v", "NodeStageVolume: no")
		f.driver.SetFault("NodeUnstageVolume", nil)
		f.end(t, b)
		if err := f.UnstageUnused(t.Context()); err != nil {
			t.Error(err)
		}
		if staged, _ := f.driver.Holds(); staged != 0 {
			t.Errorf("restart %v: the driver still has the volume staged, after the calls %q", restart, f.driver.Calls())
		}
		if left, _ := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi", driverName, "*")); len(left) != 0 {
			t.Errorf("restart %v: left: %v", restart, left)
		}
	}
}

// A file system in user space ends when the process of its driver ends. The next pod gets the volume if the driver mounts it again when it is asked to stage it.
func TestVolumeWhoseStagedFileSystemIsDeadIsStagedAgain(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteMany)
	a, b := podOf("a", claim("v", "d", false)), podOf("b", claim("v", "d", false))
	setUp(t, f.fixture, a)
	staged, err := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi", driverName, "*/globalmount"))
	if err != nil || len(staged) != 1 {
		t.Fatal(staged, err)
	}
	if err := unix.Unmount(staged[0], 0); err != nil {
		t.Fatal(err)
	}
	mountDead(t, staged[0])
	setUp(t, f.fixture, b)
	if n := f.driver.Count("NodeStageVolume"); n != 2 {
		t.Errorf("staged %d times, want 2", n)
	}
	setUp(t, f.fixture, a) // it has the volume already
	if n := f.driver.Count("NodeStageVolume"); n != 2 {
		t.Errorf("staged %d times, want 2", n)
	}
	for _, p := range []*v1.Pod{b, a} {
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi", driverName, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
