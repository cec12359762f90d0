package volume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// loopDevice creates a file if it is missing, attaches a loop device to it, and returns the path of the loop device.
func loopDevice(file string) (string, error) {
	if f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return "", err
	} else if err := f.Truncate(1 << 20); err != nil {
		return "", err
	} else {
		f.Close()
	}
	if err := (hostfs.Host{}).AttachLoop(file); err != nil {
		return "", err
	}
	backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, b := range backing {
		if text, _ := os.ReadFile(b); strings.TrimSpace(string(text)) == file {
			return "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(b))), nil
		}
	}
	return "", fmt.Errorf("no loop device for %s", file)
}

// blockDisk binds a claim to a block volume of the driver.
func (f *csiFixture) blockDisk(t *testing.T, name string) *v1.PersistentVolume {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	pv := f.disk(name, v1.ReadWriteOnce)
	pv.Spec.VolumeMode = ptr(v1.PersistentVolumeBlock)
	return pv
}

// raw makes the container of a pod use a volume as a device.
func raw(p *v1.Pod, volume string) *v1.Pod {
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: volume, DevicePath: "/dev/xvda"}}
	return p
}

// heldBy returns the number of loop devices that are attached to a path.
func heldBy(t *testing.T, path string) (n int) {
	t.Helper()
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range backing {
		if text, _ := os.ReadFile(b); strings.TrimSpace(string(text)) == path {
			n++
		}
	}
	return n
}

// Two pods share a block volume. The agent stages it once, attaches a loop device to it for each pod, and unstages it after the second
// pod has ended, although the agent was restarted in between.
func TestBlockVolume(t *testing.T) {
	t.Parallel()
	for _, stage := range []bool{true, false} {
		f := newCSI(t, simcsi.Config{Stage: stage})
		f.blockDisk(t, "d")
		a, b := raw(podOf("a", claim("v", "d", false)), "v"), raw(podOf("b", claim("v", "d", true)), "v")
		a.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(77))}
		setUp(t, f.fixture, a)
		r := f.driver.LastPublish()
		base := filepath.Join(f.root, "plugins/kubernetes.io/csi/volumeDevices")
		if want := filepath.Join(base, "publish/pv-d/a"); r.TargetPath != want || r.VolumeCapability.GetBlock() == nil || r.VolumeContext["pool"] != "a" {
			t.Errorf("stage %v: the request to publish: %v", stage, r)
		}
		if want := filepath.Join(base, "staging/pv-d"); stage && r.StagingTargetPath != want {
			t.Errorf("staged at %s, want %s", r.StagingTargetPath, want)
		}
		if n := heldBy(t, filepath.Join(base, "pv-d/dev/a")); n != 1 {
			t.Errorf("stage %v: %d loop devices hold the device", stage, n)
		}
		calls := len(f.driver.Calls())
		f.Volumes = f.restart()
		setUp(t, f.fixture, a)
		if got := f.driver.Calls()[calls:]; len(got) != 0 {
			t.Errorf("stage %v: another set-up calls the driver: %q", stage, got)
		}
		setUp(t, f.fixture, b)
		for _, c := range []struct {
			p    *v1.Pod
			want string
		}{{a, "mrw"}, {b, "r"}} {
			devices, err := f.Devices(c.p, &c.p.Spec.Containers[0])
			link := filepath.Join(f.root, "pods", string(c.p.UID), "volumeDevices/kubernetes.io~csi/pv-d")
			if err != nil || len(devices) != 1 || devices[0].HostPath != link || devices[0].ContainerPath != "/dev/xvda" || devices[0].Permissions != c.want {
				t.Errorf("stage %v: devices %v, %v", stage, devices, err)
			}
			if is, err := (hostfs.Host{}).IsBlockDevice(link); !is || err != nil {
				t.Errorf("stage %v: %s is no block device: %v", stage, link, err)
			}
		}
		if n := f.driver.Count("NodeStageVolume"); stage && n != 1 {
			t.Errorf("staged %d times for two pods", n)
		}
		for i, p := range []*v1.Pod{a, b} {
			f.Volumes = f.restart()
			if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
				t.Fatal(err)
			}
			if n := f.driver.Count("NodeUnstageVolume"); stage && n != i {
				t.Errorf("unstaged %d times after the end of %d pods", n, i+1)
			}
			if n := heldBy(t, filepath.Join(base, "pv-d/dev", string(p.UID))); n != 0 {
				t.Errorf("stage %v: %d loop devices hold the device of a pod that has ended", stage, n)
			}
		}
		for _, dir := range []string{"publish/pv-d", "staging/pv-d", "pv-d"} {
			if _, err := os.Lstat(filepath.Join(base, dir)); !os.IsNotExist(err) {
				t.Errorf("stage %v: %s is left: %v", stage, dir, err)
			}
		}
		if staged, published := f.driver.Holds(); staged+published != 0 {
			t.Errorf("stage %v: %d staged, %d published volumes are left", stage, staged, published)
		}
	}
}

// makeNode makes a device node for a device, as some drivers do.
func makeNode(device, target string) error {
	var st unix.Stat_t
	if err := errors.Join(os.Remove(target), unix.Stat(device, &st)); err != nil {
		return err
	}
	return unix.Mknod(target, unix.S_IFBLK|0o600, int(st.Rdev))
}

// A driver publishes a block volume as a device node. After a reboot the node is still there, but its number may be that of another device: the volume is
// staged and published again, for each of its pods.
func TestBlockVolumeAfterAReboot(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, Device: makeNode})
	f.blockDisk(t, "d")
	pods := []*v1.Pod{raw(podOf("a", claim("v", "d", false)), "v"), raw(podOf("b", claim("v", "d", false)), "v")}
	base := filepath.Join(f.root, "plugins/kubernetes.io/csi/volumeDevices")
	for _, p := range pods {
		setUp(t, f.fixture, p)
	}
	for _, p := range pods { // the reboot
		held := filepath.Join(base, "pv-d/dev", string(p.UID))
		if err := errors.Join(hostfs.Host{}.DetachLoop(held), hostfs.Host{}.Unmount(held)); err != nil {
			t.Fatal(err)
		}
	}
	f.driver.Forget()
	f.Volumes = f.restart()
	other := filepath.Join(f.disks, "other")
	loop, err := loopDevice(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if err := makeNode(loop, filepath.Join(base, "publish/pv-d", string(p.UID))); err != nil { // the number is that of another device now
			t.Fatal(err)
		}
	}
	for i, p := range pods {
		setUp(t, f.fixture, p)
		setUp(t, f.fixture, p)
		if staged, published := f.driver.Count("NodeStageVolume"), f.driver.Count("NodePublishVolume"); staged != 2 || published != 3+i {
			t.Errorf("after the set-up of %d pods: staged %d times, want 2; published %d times, want %d", i+1, staged, published, 3+i)
		}
		link := filepath.Join(f.root, "pods", string(p.UID), "volumeDevices/kubernetes.io~csi/pv-d")
		var got, want unix.Stat_t
		right, err := loopDevice(filepath.Join(f.disks, "disk-d"))
		if err := errors.Join(err, unix.Stat(link, &got), unix.Stat(right, &want)); err != nil || got.Rdev != want.Rdev {
			t.Errorf("pod %s gets device %d, want %d: %v", p.UID, got.Rdev, want.Rdev, err)
		}
	}
	for _, p := range pods {
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(base, "*/pv-d")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// If a call of the driver fails, before or after it has had its effect, another try succeeds, and nothing is left at the end.
func TestBlockVolumeOfADriverThatFails(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for _, after := range []bool{false, true} {
			f := newCSI(t, simcsi.Config{Stage: true})
			f.blockDisk(t, "d")
			p := raw(podOf("a", claim("v", "d", false)), "v")
			f.driver.SetFault(method, &simcsi.Fault{Err: status.Error(codes.Internal, "the disk is on fire"), After: after})
			failures := 0
			if f.SetUp(t.Context(), volume.Pod{Pod: p}) != nil {
				failures++
				f.driver.SetFault(method, nil)
				f.Volumes = f.restart()
				setUp(t, f.fixture, p)
			}
			if f.TearDown(t.Context(), pod.RefOf(p)) != nil {
				failures++
				f.driver.SetFault(method, nil)
				f.Volumes = f.restart()
				if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
					t.Errorf("%s, after %v: %v", method, after, err)
				}
			}
			staged, published := f.driver.Holds()
			left, _ := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi/volumeDevices/*/pv-d"))
			if failures != 1 || staged+published+len(left) != 0 {
				t.Errorf("%s, after %v: %d failures; %d staged, %d published, and %v are left", method, after, failures, staged, published, left)
			}
		}
	}
}

// The agent unpublishes and unstages a block volume that upstream's kubelet has published. It needs only the files that upstream's
// kubelet writes, and not the record in the directory claims.
func TestBlockVolumeOfUpstreamsKubelet(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.blockDisk(t, "d")
	p := raw(podOf("a", claim("v", "d", false)), "v")
	setUp(t, f.fixture, p)
	if err := os.RemoveAll(filepath.Join(f.root, "pods/a/claims")); err != nil {
		t.Fatal(err)
	}
	f.Volumes = f.restart()
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if staged, published := f.driver.Holds(); staged+published != 0 {
		t.Errorf("%d staged, %d published volumes are left: %q", staged, published, f.driver.Calls())
	}
}

// A container cannot get a file in place of a device, nor a device in place of a file system.
func TestVolumesOfTheWrongMode(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.disk("d", v1.ReadWriteOnce)
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: raw(podOf("a", claim("v", "d", false)), "v")}), "v", "use volumeMounts")
	f.blockDisk(t, "e")
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: podOf("b", claim("v", "e", false))}), "v", "use volumeDevices")
	p := raw(podOf("c", claim("v", "e", false)), "v")
	if _, err := f.Devices(p, &p.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "volumeDevices[0] at /dev/xvda: the volume has not been set up") {
		t.Errorf("error %v", err)
	}
	lies := newCSI(t, simcsi.Config{Mount: func(string, string) error { return nil }})
	lies.blockDisk(t, "d")
	p = raw(podOf("a", claim("v", "d", false)), "v")
	lies.driver.SetFault("NodePublishVolume", &simcsi.Fault{Lie: true})
	wantError(t, lies.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "its target_path is no block device")
	lies.driver.SetFault("NodePublishVolume", nil)
}

// A block volume can be expanded, too. The driver gets the path of the device.
func TestExpansionOfABlockVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, Expand: true})
	f.blockDisk(t, "d")
	setUp(t, f.fixture, raw(podOf("a", claim("v", "d", false)), "v"))
	f.claims.grown("d", true)
	f.visit(t)
	r := f.driver.LastExpand()
	if want := filepath.Join(f.root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-d/a"); r == nil || r.VolumePath != want || r.VolumeCapability.GetAccessType().(*csi.VolumeCapability_Block) == nil {
		t.Errorf("the request: %v", r)
	}
	if got := f.claims.said("d"); got != "2Gi " {
		t.Errorf("the claim's status: %s", got)
	}
}
