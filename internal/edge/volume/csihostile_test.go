package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// A driver that publishes a volume as a link does not make the pod see another directory of the node.
func TestCSIDriverThatPublishesALink(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]func(target string) error{
		"link to a directory": func(target string) error { return os.Symlink(t.TempDir(), target) },
		"file":                func(target string) error { return os.WriteFile(target, nil, 0o644) },
	} {
		f := newCSI(t, simcsi.Config{Mount: func(_, target string) error { return errors.Join(os.Remove(target), publish(target)) }})
		f.disk("d", v1.ReadWriteOnce)
		p := podOf("a", claim("v", "d", false))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(77))}
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "but its target_path is no directory")
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Errorf("%s: the end of the pod: %v", name, err)
		}
	}
}

// Two persistent volumes of one pod may have the same handle. The volume is unstaged after both are unpublished.
func TestTwoPersistentVolumesWithOneHandle(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true}) // the cleanup of newCSI checks that the calls followed the rules of CSI
	f.disk("d", v1.ReadWriteOnce)
	f.disk("e", v1.ReadWriteOnce).Spec.CSI.VolumeHandle = "disk-d"
	p := podOf("a", claim("v", "d", false), claim("w", "e", false))
	setUp(t, f.fixture, p)
	if staged, published := f.driver.Holds(); staged != 1 || published != 2 {
		t.Errorf("%d staged, %d published volumes, want 1 and 2", staged, published)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if staged, published := f.driver.Holds(); staged+published != 0 {
		t.Errorf("%d staged, %d published volumes are left", staged, published)
	}
}

// While the agent cannot read a directory of another pod, it does not know whether that pod uses the volume. So the volume stays
// staged, and the result ok of InUse is false.
func TestVolumeOfAPodThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"claims", "volumes/kubernetes.io~csi"} {
		f := newCSI(t, simcsi.Config{Stage: true})
		f.disk("d", v1.ReadWriteOnce)
		p := podOf("a", claim("v", "d", false))
		setUp(t, f.fixture, p)
		broken := filepath.Join(f.root, "pods/b", dir) // a file at the place of a directory, which cannot be listed
		if err := errors.Join(os.MkdirAll(filepath.Dir(broken), 0o755), os.WriteFile(broken, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err == nil || !strings.Contains(err.Error(), "whether pod b uses the volume") {
			t.Errorf("%s: error %v", dir, err)
		}
		if staged, _ := f.driver.Holds(); staged != 1 {
			t.Errorf("%s: %d volumes are staged, want 1", dir, staged)
		}
		if names, ok := f.restart().InUse(); ok {
			t.Errorf("%s: in use: %v, although pod b cannot be read", dir, names)
		}
		if err := os.Remove(broken); err != nil {
			t.Fatal(err)
		}
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// If the directory of a pod's CSI volumes cannot be listed, the tear-down fails. It does not skip the calls of the driver.
func TestTearDownOfAPodThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.disk("d", v1.ReadWriteOnce)
	p := podOf("a", claim("v", "d", false))
	setUp(t, f.fixture, p)
	volumes := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi")
	if err := errors.Join(os.Rename(volumes, volumes+".away"), os.WriteFile(volumes, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err == nil || !strings.Contains(err.Error(), "list CSI volumes") {
		t.Errorf("error %v", err)
	}
	if err := errors.Join(os.Remove(volumes), os.Rename(volumes+".away", volumes)); err != nil {
		t.Fatal(err)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Error(err)
	}
	if _, published := f.driver.Holds(); published != 0 {
		t.Errorf("%d volumes are still published", published)
	}
}

// The set-up of a volume that waits for its attachment sends no request after it was canceled.
func TestCanceledWaitForAnAttachment(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.disk("d", v1.ReadWriteOnce)
	f.claims.drivers[driverName].Spec.AttachRequired = nil
	f.claims.attached = func() { t.Error("a request for the VolumeAttachment") }
	f.claims.node.Status.VolumesInUse = []v1.UniqueVolumeName{"kubernetes.io/csi/" + driverName + "^disk-d"}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- f.SetUp(ctx, volume.Pod{Pod: podOf("a", claim("v", "d", false))}) }()
	f.await(t, func() bool { names, _ := f.InUse(); return len(names) > 0 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// An inline volume may have the name of the persistent volume of another volume of its pod. Both would have one directory, and the agent would lose one of
// them: so the volume with the claim is refused, before its driver is called.
func TestInlineVolumeWithTheNameOfAPersistentVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	inline := v1.Volume{Name: "pv-d", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}}
	p := podOf("a", claim("v", "d", false), inline)
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", `the persistentvolume "pv-d" would have the same directory as the volume "pv-d" of the pod`)
	if staged, published := f.driver.Holds(); staged != 0 || published != 1 {
		t.Errorf("%d staged, %d published volumes, want only the inline volume", staged, published)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Error(err)
	}
	alone := podOf("b", claim("pv-d", "d", false)) // a volume of the same name whose directory is that of its own persistent volume
	setUp(t, f.fixture, alone)
	if err := f.TearDown(t.Context(), pod.RefOf(alone)); err != nil {
		t.Error(err)
	}
}

// In the directory of block volumes, the names staging and publish belong to the directories in which drivers work. A persistent volume of such a name is
// refused: to unstage it, the agent would delete the directories of all other block volumes.
func TestBlockVolumeWithANameOfTheAgents(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	for _, name := range []string{"staging", "publish"} {
		pv := f.blockDisk(t, "c-"+name)
		delete(f.claims.pvs, pv.Name)
		pv.Name = name
		f.claims.pvs[name], f.claims.claims["c-"+name].Spec.VolumeName = pv, name
		p := raw(podOf("a", claim("v", "c-"+name, false)), "v")
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "a block volume cannot have the name "+name)
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Error(err)
		}
	}
	if staged, published := f.driver.Holds(); staged+published != 0 {
		t.Errorf("%d staged, %d published volumes", staged, published)
	}
}

// The handle of a volume may have any characters, and the files of the agent have a bound. A handle that is too long as they contain it is refused before the
// driver is called. The longest one that is allowed is known to the next agent, too.
func TestHandleOfAnyCharacters(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	f := newCSI(t, simcsi.Config{Stage: true, Mount: func(_, target string) error { return unix.Mount(data, target, "", unix.MS_BIND, "") }})
	for _, handle := range []string{strings.Repeat("<", 16<<10), strings.Repeat("\x00", 16<<10), "\xff", ""} {
		f.disk("d", v1.ReadWriteOnce).Spec.CSI.VolumeHandle = handle
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: podOf("a", claim("v", "d", false))}), "v", "volumeHandle")
	}
	if n := f.driver.Count("NodeStageVolume"); n != 0 {
		t.Errorf("the driver was called %d times", n)
	}
	for _, handle := range []string{strings.Repeat("x", 16<<10), strings.Repeat("<", 16<<10/6), strings.Repeat("\x01\n\"", 1000)} {
		f.disk("d", v1.ReadWriteOnce).Spec.CSI.VolumeHandle = handle
		p := podOf("a", claim("v", "d", false))
		setUp(t, f.fixture, p)
		f.Volumes = f.restart()
		dir(t, f.fixture, p, "v")
		if err := errors.Join(f.TearDown(t.Context(), pod.RefOf(p)), f.Remove(t.Context(), pod.RefOf(p))); err != nil {
			t.Error(err)
		}
		if staged, published := f.driver.Holds(); staged+published != 0 {
			t.Errorf("%d staged, %d published volumes are left", staged, published)
		}
	}
}

// The names of the attached volumes are in the status of the Node, which has a bound in the API server. Pods with many long handles get no more volumes than
// fit, so that the status can be written.
func TestNamesOfVolumesFitIntoTheStatusOfTheNode(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.claims.drivers[driverName].Spec.AttachRequired = nil
	var volumes []v1.Volume
	for i := range 40 {
		name := fmt.Sprint("d", i)
		f.disk(name, v1.ReadWriteOnce).Spec.CSI.VolumeHandle = name + strings.Repeat("x", 16000)
		volumes = append(volumes, claim("v"+name, name, false))
	}
	p := podOf("a", volumes...)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- f.SetUp(ctx, volume.Pod{Pod: p}) }()
	f.await(t, func() bool { names, _ := f.InUse(); return len(names) >= 32 })
	cancel()
	err := <-failed
	names, ok := f.InUse()
	size := 0
	for _, name := range names {
		size += len(name)
	}
	if !ok || size > 512<<10 || len(names) != 32 {
		t.Errorf("%d volumes in use, whose names have %d bytes, %v", len(names), size, ok)
	}
	if n := strings.Count(err.Error(), "the names of the volumes that are attached to this node would have more than 524288 bytes"); n != 8 {
		t.Errorf("%d volumes were refused, want 8", n)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Error(err)
	}
	next := podOf("b", claim("v", "d39", false)) // there is room again: it only waits for its attachment
	ctx, cancel = context.WithCancel(t.Context())
	go func() { failed <- f.SetUp(ctx, volume.Pod{Pod: next}) }()
	f.await(t, func() bool { names, _ := f.InUse(); return len(names) == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Upstream's kubelet has published a volume, and the file about it beside the pod's mount is lost. The volume is not unstaged while the pod has it, and is taken
// down by its driver.
func TestVolumeWhoseDataIsLost(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{"torn": `{"driverName":`, "gone": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newCSI(t, simcsi.Config{Stage: true})
			f.disk("d", v1.ReadWriteOnce)
			p := podOf("a", claim("v", "d", false))
			setUp(t, f.fixture, p)
			file := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/vol_data.json")
			if err := errors.Join(os.RemoveAll(filepath.Join(f.root, "pods/a/claims")), os.Remove(file)); err != nil {
				t.Fatal(err)
			}
			if data != "" {
				if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			f.Volumes = f.restart()
			if err := f.UnstageUnused(t.Context()); err != nil || f.driver.Count("NodeUnstageVolume") != 0 {
				t.Errorf("unstaged %d times while the pod has the volume, %v", f.driver.Count("NodeUnstageVolume"), err)
			}
			if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil || f.driver.Count("NodeUnpublishVolume") != 1 || f.driver.Count("NodeUnstageVolume") != 1 {
				t.Errorf("taken down with the calls %q, %v", f.driver.Calls(), err)
			}
		})
	}
}
