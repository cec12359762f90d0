package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

func emptyDir(name string) v1.Volume {
	return vol(name, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
}

func TestMountOptions(t *testing.T) {
	t.Parallel()
	enabled, ifPossible := ptr(v1.RecursiveReadOnlyEnabled), ptr(v1.RecursiveReadOnlyIfPossible)
	private, fromHost, both := runtimeapi.MountPropagation_PROPAGATION_PRIVATE, runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	tests := []struct {
		name     string
		mount    v1.VolumeMount
		can      bool // whether the runtime can mount read-only recursively
		readOnly bool
		rro      bool
		prop     runtimeapi.MountPropagation
		err      string
	}{
		{"plain", v1.VolumeMount{Name: "e"}, false, false, false, private, ""},
		{"readOnly", v1.VolumeMount{Name: "e", ReadOnly: true}, false, true, false, private, ""},
		{"files are always read-only", v1.VolumeMount{Name: "cm"}, false, true, false, private, ""},
		{"None", v1.VolumeMount{Name: "e", MountPropagation: ptr(v1.MountPropagationNone)}, false, false, false, private, ""},
		{"HostToContainer", v1.VolumeMount{Name: "e", MountPropagation: ptr(v1.MountPropagationHostToContainer)}, false, false, false, fromHost, ""},
		{"Bidirectional", v1.VolumeMount{Name: "e", MountPropagation: ptr(v1.MountPropagationBidirectional)}, false, false, false, both, ""},
		{"unknown propagation", v1.VolumeMount{Name: "e", MountPropagation: ptr(v1.MountPropagationMode("Up"))}, false, false, false, private, `mountPropagation "Up" is unknown`},
		{"rro enabled", v1.VolumeMount{Name: "e", ReadOnly: true, RecursiveReadOnly: enabled}, true, true, true, private, ""},
		{"rro enabled, runtime cannot", v1.VolumeMount{Name: "e", ReadOnly: true, RecursiveReadOnly: enabled}, false, true, true, private, "the container runtime (handler) cannot do it"},
		{"rro if possible, runtime cannot", v1.VolumeMount{Name: "e", ReadOnly: true, RecursiveReadOnly: ifPossible}, false, true, false, private, ""},
		{"rro without readOnly", v1.VolumeMount{Name: "e", RecursiveReadOnly: enabled}, true, false, false, private, "set readOnly: true"},
		{"rro with propagation", v1.VolumeMount{Name: "e", ReadOnly: true, RecursiveReadOnly: enabled, MountPropagation: ptr(v1.MountPropagationHostToContainer)}, true, false, false, private, "does not go with mountPropagation"},
		{"no such volume", v1.VolumeMount{Name: "x"}, false, false, false, private, `the pod has no volume "x"`},
		{"subPath out", v1.VolumeMount{Name: "e", SubPath: "a/../.."}, false, false, false, private, "must not contain '..'"},
		{"subPath absolute", v1.VolumeMount{Name: "e", SubPath: "/a"}, false, false, false, private, "must not be an absolute path"},
		{"subPathExpr without variable", v1.VolumeMount{Name: "e", SubPathExpr: "$(NO)/a"}, false, false, false, private, "no value for environment variable NO"},
		{"subPathExpr of an empty variable", v1.VolumeMount{Name: "e", SubPathExpr: "$(EMPTY)"}, false, false, false, private, "no value for environment variable EMPTY"},
		{"subPathExpr out", v1.VolumeMount{Name: "e", SubPathExpr: "$(UP)/a"}, false, false, false, private, "must not contain '..'"},
		{"subPathExpr absolute", v1.VolumeMount{Name: "e", SubPathExpr: "$(ROOT)"}, false, false, false, private, "must not be an absolute path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.api.configMaps["cm"] = &v1.ConfigMap{}
			p := aPod()
			p.Spec.Volumes = []v1.Volume{emptyDir("e"), vol("cm", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}})}
			tt.mount.MountPath = "data" // a relative path starts at the root
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{tt.mount}
			setUp(t, f, p)
			mounts, err := f.Mounts(t.Context(), volume.MountInput{
				Pod: p, Container: &p.Spec.Containers[0], RecursiveReadOnly: tt.can,
				Env: []crispec.EnvVar{{Name: "UP", Value: ".."}, {Name: "ROOT", Value: "/etc"}, {Name: "EMPTY", Value: "a"}, {Name: "EMPTY"}},
			})
			if tt.err != "" {
				wantError(t, err, tt.mount.Name, tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			m := mounts[0]
			if m.ContainerPath != "/data" || m.Readonly != tt.readOnly || m.RecursiveReadOnly != tt.rro || m.Propagation != tt.prop || !m.SelinuxRelabel {
				t.Errorf("mount %v", m)
			}
		})
	}
}

func TestImageVolumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod(vol("i", v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "example.org/data:1"}}))
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "sub"
	setUp(t, f, p)
	in := volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]}
	_, err := f.Mounts(t.Context(), in)
	wantError(t, err, "i", "not supported")
	in.Image = func(vol *v1.Volume, sub string) (*runtimeapi.ImageSpec, error) {
		return &runtimeapi.ImageSpec{Image: "sha256:" + vol.Name + sub}, nil
	}
	mounts, err := f.Mounts(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if m := mounts[0]; m.HostPath != "" || m.Image.GetImage() != "sha256:isub" || m.ImageSubPath != "sub" || !m.Readonly {
		t.Errorf("mount %v", m)
	}
}

func TestPodFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod()
	c := &p.Spec.Containers[0]
	c.TerminationMessagePath = "/dev/termination-log"
	setUp(t, f, p)
	in := volume.MountInput{Pod: p, Container: c, Hosts: []byte("127.0.0.1 localhost\n")}
	find := func(path string) *runtimeapi.Mount {
		t.Helper()
		mounts, err := f.Mounts(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(mounts, func(m *runtimeapi.Mount) bool { return m.ContainerPath == path })
		if i < 0 {
			return nil
		}
		return mounts[i]
	}
	hosts := find("/etc/hosts")
	if want := filepath.Join(f.root, "pods/uid-1/etc-hosts"); hosts == nil || hosts.HostPath != want || hosts.Readonly {
		t.Fatalf("hosts mount %v, want of %s", hosts, want)
	}
	before, _ := os.Stat(hosts.HostPath)
	in.Hosts = []byte("127.0.0.1 localhost\n10.0.0.1 p\n")
	find("/etc/hosts")
	after, _ := os.Stat(hosts.HostPath)
	if got, _ := os.ReadFile(hosts.HostPath); string(got) != string(in.Hosts) || !os.SameFile(before, after) {
		t.Errorf("hosts file %q, same inode %t", got, os.SameFile(before, after))
	}
	first, second := find("/dev/termination-log"), find("/dev/termination-log")
	if first.HostPath == second.HostPath {
		t.Error("two attempts share a termination message file")
	}
	if got := ownerOf(t, second.HostPath).Mode; got != 0o666 {
		t.Errorf("termination message file has mode %v", got)
	}
	for range 20 {
		find("/dev/termination-log")
	}
	last := find("/dev/termination-log")
	left, _ := os.ReadDir(filepath.Dir(last.HostPath))
	if len(left) != 5 {
		t.Errorf("%d termination message files of one container, want 5", len(left))
	}
	if _, err := os.Stat(last.HostPath); err != nil {
		t.Error(err)
	}
	// If a container mounts volumes at these two paths, it gets neither the hosts file nor the termination message file.
	p.Spec.Volumes = []v1.Volume{emptyDir("e")}
	c.VolumeMounts = []v1.VolumeMount{{Name: "e", MountPath: "/etc/hosts/"}, {Name: "e", MountPath: "/dev/termination-log"}}
	setUp(t, f, p)
	mounts, err := f.Mounts(t.Context(), in)
	if err != nil || len(mounts) != 2 {
		t.Errorf("mounts %v, %v, want the container's two", mounts, err)
	}
	// The runtime gets the paths of the spec unchanged.
	c.VolumeMounts[0].MountPath, c.VolumeMounts[1].MountPath = "/data/", "/a/../b"
	mounts, err = f.Mounts(t.Context(), in)
	if err != nil || mounts[0].ContainerPath != "/data/" || mounts[1].ContainerPath != "/a/../b" {
		t.Errorf("mounts %v, %v, want the spec's paths", mounts, err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	p := aPod(emptyDir("disk"), vol("mem", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		vol("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}))
	if u, err := f.Usage(t.Context(), p); err != nil || len(u) != 0 {
		t.Errorf("before SetUp: %v, %v", u, err)
	}
	setUp(t, f, p)
	for _, name := range []string{"disk", "mem"} {
		if err := os.WriteFile(filepath.Join(dir(t, f, p, name), "f"), make([]byte, 1<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.Usage(t.Context(), p)
	if err != nil || len(got) != 2 {
		t.Fatalf("usage %v, %v", got, err)
	}
	for i, name := range []string{"disk", "mem"} {
		u := got[i]
		if u.Name != name || u.Memory != (name == "mem") || u.UsedBytes < 1<<20 || u.UsedBytes > 1<<21 || u.InodesUsed != 2 || u.CapacityBytes < u.AvailableBytes || u.Time.IsZero() {
			t.Errorf("usage %+v", u)
		}
	}
	// With a canceled context, Usage still returns the last results, which are less than a minute old.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if again, err := f.Usage(gone, p); err != nil || again[0].UsedBytes != got[0].UsedBytes {
		t.Errorf("%v, %v", again, err)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod(emptyDir("e"))
	setUp(t, f, p)
	root := dir(t, f, p, "e")
	if err := errors.Join(
		os.WriteFile(filepath.Join(root, "env"), []byte("A=1\n"), 0o644), os.WriteFile(filepath.Join(root, "big"), make([]byte, 1<<20), 0o644),
		os.Symlink("env", filepath.Join(root, "link")), os.Symlink("/etc/passwd", filepath.Join(root, "out")), unix.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"env", "link"} {
		if data, err := f.ReadFile(p, "e", path); err != nil || string(data) != "A=1\n" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	for _, path := range []string{"out", "big", "pipe", "../x", "/etc/passwd", ".."} {
		if data, err := f.ReadFile(p, "e", path); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: read %d bytes, %v", path, len(data), err)
		}
	}
	if _, err := f.ReadFile(p, "e", "no"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := f.ReadFile(p, "x", "env"); err == nil {
		t.Error("read from a volume that is not there")
	}
}

func TestInMemoryWritesNothing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a := &api{configMaps: map[string]*v1.ConfigMap{}}
	m := volume.NewInMemory(volume.Config{RootDir: root, Objects: a})
	p := aPod(vol("v", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}))
	wantError(t, m.SetUp(t.Context(), volume.Pod{Pod: p}), "v", `configmap "cm" not found`)
	a.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"k": "v"}}
	if err := m.SetUp(t.Context(), volume.Pod{Pod: p}); err != nil {
		t.Fatal(err)
	}
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "k"
	mounts, err := m.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil || mounts[0].HostPath != filepath.Join(root, "pods/uid-1/volumes/kubernetes.io~configmap/v/k") || !mounts[0].Readonly {
		t.Errorf("%v, %v", mounts, err)
	}
	if o, _ := m.Orphans(func(types.UID) bool { return false }); !cmp.Equal(o, []types.UID{"uid-1"}) {
		t.Errorf("orphans %v", o)
	}
	if err := errors.Join(m.TearDown(t.Context(), pod.RefOf(p)), m.Remove(t.Context(), pod.RefOf(p))); err != nil {
		t.Error(err)
	}
	if o, _ := m.Orphans(func(types.UID) bool { return false }); len(o) != 0 {
		t.Errorf("orphans %v", o)
	}
	if left, _ := os.ReadDir(root); len(left) != 0 {
		t.Errorf("written: %v", left)
	}
}

// grow fills a file, as a container that mounts the file does.
func grow(t *testing.T, path string, bytes int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.Write(make([]byte, bytes))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// The agent measures how much disk space the hosts file takes after a container has written to it. A sparse file of 4 TiB takes
// none.
func TestCVE20208557HostsFileIsMeasured(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod()
	setUp(t, f, p)
	hosts := filepath.Join(f.root, "pods", string(p.UID), "etc-hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := f.FilesUsage(p.UID)
	if err != nil || before.Hosts > 64<<10 || before.Inodes != 1 || before.Bytes() != before.Hosts {
		t.Errorf("%+v, %v", before, err)
	}
	if err := os.Truncate(hosts, 1<<42); err != nil {
		t.Fatal(err)
	}
	if u, err := f.FilesUsage(p.UID); err != nil || u.Hosts > 64<<10 {
		t.Errorf("a sparse file: %+v, %v", u, err)
	}
	if err := os.Truncate(hosts, 0); err != nil {
		t.Fatal(err)
	}
	grow(t, hosts, 8<<20)
	u, err := f.BoundFiles(p.UID)
	if err != nil || u.Hosts < 8<<20 || u.Bytes() != u.Hosts {
		t.Errorf("8 MiB written: %+v, %v", u, err)
	}
	if info, err := os.Stat(hosts); err != nil || info.Size() != 8<<20 {
		t.Errorf("the hosts file was cut under its container: %v, %v", info.Size(), err)
	}
	if u, err := f.FilesUsage("nobody"); err != nil || u.Bytes() != 0 {
		t.Errorf("a pod that has nothing: %+v, %v", u, err)
	}
	if _, err := f.FilesUsage("../.."); err == nil {
		t.Error("a UID that is no file name")
	}
}

// The agent counts a termination log that a container fills (kubernetes#122224), and then cuts it. The log keeps its length and
// its end, which holds the message, and a container that appends continues at the same position.
func TestTerminationLogIsBoundedOnDisk(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod()
	setUp(t, f, p)
	in := volume.MountInput{Pod: p, Container: &v1.Container{Name: "c", TerminationMessagePath: "/dev/termination-log"}}
	mounts, err := f.Mounts(t.Context(), in)
	if err != nil || len(mounts) != 1 {
		t.Fatal(mounts, err)
	}
	path := mounts[0].GetHostPath()
	grow(t, path, 16<<20)
	container, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer container.Close()
	if _, err := container.WriteString("the last words"); err != nil {
		t.Fatal(err)
	}
	if u, err := f.FilesUsage(p.UID); err != nil || u.Messages["c"] < 16<<20 {
		t.Errorf("16 MiB written: %+v, %v", u, err)
	}
	if u, err := f.BoundFiles(p.UID); err != nil || u.Messages["c"] < 16<<20 {
		t.Errorf("what was there before it was cut: %+v, %v", u, err)
	}
	u, err := f.BoundFiles(p.UID)
	if err != nil || u.Messages["c"] > 128<<10 {
		t.Errorf("cut back: %+v, %v", u, err)
	}
	if _, err := container.WriteString(", and more"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	const words = "the last words, and more"
	if err != nil || len(data) != 16<<20+len(words) || string(data[16<<20:]) != words {
		t.Errorf("%d bytes, %v, ending with %q", len(data), err, data[max(0, len(data)-40):])
	}
}

// If a link or a pipe replaces a termination message, the agent does not follow the link and does not block on the pipe.
func TestWhatIsNoTerminationLogIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod()
	setUp(t, f, p)
	at := filepath.Join(f.root, "pods", string(p.UID), "containers", "c")
	precious := filepath.Join(t.TempDir(), "precious")
	if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(precious, make([]byte, 2<<20), 0o644), os.Symlink(precious, filepath.Join(at, "link")), unix.Mkfifo(filepath.Join(at, "pipe"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if u, err := f.BoundFiles(p.UID); err != nil || u.Bytes() > 64<<10 || u.Inodes != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	if u, err := blocks(precious); err != nil || u < 2<<20 {
		t.Errorf("cut through a link: %d, %v", u, err)
	}
}

func blocks(path string) (int64, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return st.Blocks * 512, err
}

// Attempts to create a container that fail do not remove the termination message of the attempt that ran last, which the pod's status shows.
func TestFailedAttemptsKeepTheLastMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod()
	setUp(t, f, p)
	in := volume.MountInput{Pod: p, Container: &v1.Container{Name: "c", TerminationMessagePath: "/dev/termination-log"}}
	next := func() string {
		t.Helper()
		mounts, err := f.Mounts(t.Context(), in)
		if err != nil || len(mounts) != 1 {
			t.Fatal(mounts, err)
		}
		return mounts[0].GetHostPath()
	}
	ran := next()
	if err := os.WriteFile(ran, []byte("why it ended"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		next()
	}
	if got, err := os.ReadFile(ran); err != nil || string(got) != "why it ended" {
		t.Errorf("the message of the attempt that ran: %q, %v", got, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(ran)); len(left) > 5 {
		t.Errorf("%d files are kept, want at most 5", len(left))
	}
}
