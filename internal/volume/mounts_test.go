package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/crispec"
	"github.com/wherry-node/wherry/internal/hostfs"
	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/volume"
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
		can      bool // the runtime can mount read-only recursively
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
		{"subPathExpr without variable", v1.VolumeMount{Name: "e", SubPathExpr: "$(NO)/a"}, false, false, false, private, "no environment variable NO"},
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
			tt.mount.MountPath = "data" // relative: from the root
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{tt.mount}
			setUp(t, f, p)
			mounts, err := f.Mounts(t.Context(), volume.MountInput{
				Pod: p, Container: &p.Spec.Containers[0], RecursiveReadOnly: tt.can,
				Env: []crispec.EnvVar{{Name: "UP", Value: ".."}, {Name: "ROOT", Value: "/etc"}},
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
	// A container that mounts something there itself gets neither.
	p.Spec.Volumes = []v1.Volume{emptyDir("e")}
	c.VolumeMounts = []v1.VolumeMount{{Name: "e", MountPath: "/etc/hosts/"}, {Name: "e", MountPath: "/dev/termination-log"}}
	setUp(t, f, p)
	mounts, err := f.Mounts(t.Context(), in)
	if err != nil || len(mounts) != 2 {
		t.Errorf("mounts %v, %v, want the container's two", mounts, err)
	}
}

// subPathPod mounts sub of an emptyDir.
func subPathPod(sub string) *v1.Pod {
	p := aPod(emptyDir("e"))
	p.Spec.Containers[0].VolumeMounts[0].SubPath = sub
	return p
}

func (f *fixture) mount(t *testing.T, p *v1.Pod) (string, error) {
	t.Helper()
	mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0], Env: []crispec.EnvVar{{Name: "NAME", Value: "x"}, {Name: "NAME", Value: "web"}}})
	if err != nil {
		return "", err
	}
	return mounts[0].HostPath, nil
}

// "the volume's mode" is all of it: a directory made in a tmpfs is sticky as the tmpfs is.
func TestSubPathOfTmpfsHasItsWholeMode(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	p := subPathPod("sub")
	p.Spec.Volumes[0].EmptyDir.Medium = v1.StorageMediumMemory
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(123))}
	setUp(t, f, p)
	got, err := f.mount(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(owner{os.ModeDir | os.ModeSetgid | os.ModeSticky | 0o777, 0, 123}, ownerOf(t, got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSubPath(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	whole := aPod(emptyDir("e"))
	whole.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(55))}
	setUp(t, f, whole)
	root := dir(t, f, whole, "e")

	// Missing: made with the mode of the volume, its group, and mounted where no container reaches.
	p := subPathPod("a/b")
	got, err := f.mount(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(f.root, "pods/uid-1/volume-subpaths/e/c/0"); got != want {
		t.Errorf("mounted from %s, want %s", got, want)
	}
	if diff := cmp.Diff(owner{os.ModeDir | os.ModeSetgid | 0o777, 0, 55}, ownerOf(t, filepath.Join(root, "a/b"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(root, "a/b/f"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(got, "f")); err != nil {
		t.Error(err)
	}
	// The next attempt keeps the mount.
	if again, err := f.mount(t, p); err != nil || again != got {
		t.Errorf("again: %s, %v", again, err)
	}
	if points, _ := (hostfs.Host{}).MountPoints(filepath.Join(f.root, "pods")); len(points) != 1 {
		t.Errorf("mounts %v, want one", points)
	}
	// The directory was replaced meanwhile: the next attempt sees the new one.
	if err := errors.Join(os.Rename(filepath.Join(root, "a/b"), filepath.Join(root, "a/old")), os.Mkdir(filepath.Join(root, "a/b"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.mount(t, p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(got, "f")); err == nil {
		t.Error("the old directory is still mounted")
	}
	// A file where a directory was.
	if err := errors.Join(os.Remove(filepath.Join(root, "a/b")), os.WriteFile(filepath.Join(root, "a/b"), []byte("file"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.mount(t, p); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(got); err != nil || string(data) != "file" {
		t.Errorf("subPath of a file: %q, %v", data, err)
	}
	// An expression; the last value of a variable counts.
	p = aPod(emptyDir("e"))
	p.Spec.Containers[0].VolumeMounts[0].SubPathExpr = "logs/$(NAME)"
	if _, err := f.mount(t, p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "logs/web")); err != nil {
		t.Error(err)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if points, _ := (hostfs.Host{}).MountPoints(filepath.Join(f.root, "pods")); len(points) != 0 {
		t.Errorf("mounts after TearDown: %v", points)
	}
}

func TestSubPathOfFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.api.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"app.conf": "1"}}
	src := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}
	p := aPod(vol("cm", v1.VolumeSource{ConfigMap: src}))
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "app.conf"
	setUp(t, f, p)
	got, err := f.mount(t, p)
	if err != nil {
		t.Fatal(err)
	}
	read := func() string {
		data, err := os.ReadFile(got)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	f.api.configMaps["cm"].Data["app.conf"] = "2"
	setUp(t, f, p)
	if read() != "1" {
		t.Errorf("%q: a subPath does not follow updates while its container runs", read())
	}
	if _, err := f.mount(t, p); err != nil || read() != "2" {
		t.Errorf("%q, %v: the next attempt has the new content", read(), err)
	}
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "typo.conf"
	_, err = f.mount(t, p)
	wantError(t, err, "cm", `subPath "typo.conf" does not exist`)
	src.Optional = ptr(true)
	if _, err := f.mount(t, p); err != nil {
		t.Errorf("optional: %v", err)
	}
}

func TestSubPathThatEscapes(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	whole := aPod(emptyDir("e"))
	setUp(t, f, whole)
	root := dir(t, f, whole, "e")
	outside := t.TempDir()
	err := errors.Join(
		os.Symlink(outside, filepath.Join(root, "absolute")),
		os.Symlink("../../../../../..", filepath.Join(root, "up")),
		os.Symlink("/proc/self/root", filepath.Join(root, "magic")),
		os.Symlink(filepath.Join(outside, "new"), filepath.Join(root, "dangling")),
		os.Mkdir(filepath.Join(root, "real"), 0o755),
		os.Symlink("real", filepath.Join(root, "inside")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"absolute", "absolute/new", "up", "up/etc", "magic", "magic/etc", "dangling", "dangling/x"} {
		_, err := f.mount(t, subPathPod(sub))
		wantError(t, err, "e", "failed to prepare subPath")
		if strings.Contains(err.Error(), outside) || strings.Contains(err.Error(), f.root) {
			t.Errorf("%s: the message tells of the host: %v", sub, err)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("made outside: %v", left)
	}
	if _, err := f.mount(t, subPathPod("inside")); err != nil {
		t.Errorf("a link that stays inside: %v", err)
	}
}

// A container swaps a directory for a link to the host while its pod's containers are started again and again: what
// is mounted is always the volume's.
func TestSubPathUnderAttack(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	whole := aPod(emptyDir("e"))
	setUp(t, f, whole)
	root, outside := dir(t, f, whole, "e"), t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "x/d"), 0o755), os.WriteFile(filepath.Join(root, "x/d/mine"), nil, 0o644),
		os.Mkdir(filepath.Join(outside, "d"), 0o755), os.Symlink(outside, filepath.Join(root, "y")),
	); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, "x"), unix.AT_FDCWD, filepath.Join(root, "y"), unix.RENAME_EXCHANGE)
		}
	}()
	mounted, refused := 0, 0
	for i := 0; i < 300 || (mounted < 10 && i < 20000); i++ {
		got, err := f.mount(t, subPathPod("x/d"))
		if err != nil {
			refused++
			continue
		}
		mounted++
		if _, err := os.Stat(filepath.Join(got, "mine")); err != nil {
			t.Fatalf("mounted something else than the volume's directory: %v", err)
		}
		if err := (hostfs.Host{}).Unmount(got); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	<-ended
	if mounted == 0 || refused == 0 {
		t.Logf("a weak attack: %d mounted, %d refused", mounted, refused)
	}
	if left, _ := os.ReadDir(filepath.Join(outside, "d")); len(left) != 0 {
		t.Errorf("the host's directory has %v", left)
	}
}

func TestTearDown(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.api.secrets["s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	p := aPod(emptyDir("e"), vol("s", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}))
	p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "e", MountPath: "/sub", SubPath: "sub"})
	setUp(t, f, p)
	message := dir(t, f, p, "dev/termination-log")
	// Whatever else got mounted below, by a container with Bidirectional propagation for instance, and is busy.
	precious := t.TempDir()
	inside := filepath.Join(dir(t, f, p, "e"), "left-mounted")
	if err := errors.Join(os.WriteFile(filepath.Join(precious, "file"), nil, 0o644), os.Mkdir(inside, 0o755), unix.Mount(precious, inside, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Open(filepath.Join(dir(t, f, p, "s"), "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()

	other := volume.New(volume.Config{RootDir: f.root, Host: hostfs.Host{}}) // an agent that knows nothing of the pod
	orphans, err := other.Orphans(func(types.UID) bool { return false })
	if diff := cmp.Diff([]types.UID{"uid-1"}, orphans); err != nil || diff != "" {
		t.Fatalf("orphans: %v %s", err, diff)
	}
	ref := pod.Ref{UID: "uid-1"}
	for range 2 {
		if err := other.TearDown(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("deleted through a mount: %v", err)
	}
	if _, err := os.Stat(message); err != nil {
		t.Errorf("the termination message is gone before anyone could report it: %v", err)
	}
	left, _ := os.ReadDir(filepath.Join(f.root, "pods/uid-1"))
	names := fmt.Sprint(left)
	if strings.Contains(names, "volume") {
		t.Errorf("left after TearDown: %s", names)
	}
	for range 2 {
		if err := other.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(f.root, "pods")); len(left) != 0 {
		t.Errorf("left after Remove: %v", left)
	}
	if err := other.TearDown(t.Context(), pod.Ref{UID: ".."}); err == nil {
		t.Error("tore down a UID that is a path")
	}
}

// deafHost says that nothing is mounted: the deletion itself must see what is.
type deafHost struct{ hostfs.Host }

func (deafHost) MountPoints(string) ([]string, error) { return nil, nil }

func TestRemoveTrustsNoMountTable(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	p := aPod(emptyDir("e"))
	setUp(t, f, p)
	precious := t.TempDir()
	inside := filepath.Join(dir(t, f, p, "e"), "mounted")
	if err := errors.Join(os.WriteFile(filepath.Join(precious, "file"), nil, 0o644), os.Mkdir(inside, 0o755), unix.Mount(precious, inside, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	v := volume.New(volume.Config{RootDir: f.root, Host: deafHost{}})
	if err := v.Remove(t.Context(), pod.RefOf(p)); !errors.Is(err, hostfs.ErrMounted) {
		t.Errorf("error %v, want ErrMounted", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("deleted through a mount: %v", err)
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
	// A walk that is cut short gives the last result.
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
	m := volume.NewInMemory(root, a)
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
