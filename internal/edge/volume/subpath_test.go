package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// subPathPod returns a pod whose container mounts the subPath sub of an emptyDir.
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

// A directory that is made for a subPath has the same mode as the volume, including the sticky bit of a tmpfs.
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

	// A missing directory gets the volume's mode and group, and is mounted where no container reaches it.
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
	// The next attempt reuses the mount.
	if again, err := f.mount(t, p); err != nil || again != got {
		t.Errorf("again: %s, %v", again, err)
	}
	if points, _ := (hostfs.Host{}).MountPoints(filepath.Join(f.root, "pods")); len(points) != 1 {
		t.Errorf("mounts %v, want one", points)
	}
	// If the directory has been replaced in the meantime, the next attempt sees the new directory.
	if err := errors.Join(os.Rename(filepath.Join(root, "a/b"), filepath.Join(root, "a/old")), os.Mkdir(filepath.Join(root, "a/b"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.mount(t, p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(got, "f")); err == nil {
		t.Error("the old directory is still mounted")
	}
	// The next attempt also sees a file that has replaced the directory.
	if err := errors.Join(os.Remove(filepath.Join(root, "a/b")), os.WriteFile(filepath.Join(root, "a/b"), []byte("file"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.mount(t, p); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(got); err != nil || string(data) != "file" {
		t.Errorf("subPath of a file: %q, %v", data, err)
	}
	// If the environment has a variable twice, a subPathExpr uses the last value.
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

// A container that mounts a directory of a ConfigMap as a subPath keeps the content with which it started when the ConfigMap changes, as one that mounts a
// file does. The old content goes when no container has it any more.
func TestSubPathOfADirectoryOfFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, kind := range []string{"on disk", "in memory"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.api.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"key": "1"}}
			src := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "key", Path: "etc/d/app.conf"}}}
			p := aPod(vol("cm", v1.VolumeSource{ConfigMap: src}))
			if kind == "in memory" {
				p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: src.LocalObjectReference, Items: src.Items}}}}}
			}
			p.Spec.Containers[0].VolumeMounts[0].SubPath = "etc/d"
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "cm", MountPath: "/whole", SubPath: "."})
			update := func(content string, times int) {
				t.Helper()
				f.api.configMaps["cm"].Data["key"] = content
				for range times {
					setUp(t, f, p)
				}
			}
			update("1", 1)
			got, err := f.mount(t, p)
			if err != nil {
				t.Fatal(err)
			}
			want := func(content string, versions int) {
				t.Helper()
				if data, err := os.ReadFile(filepath.Join(got, "app.conf")); err != nil || string(data) != content {
					t.Errorf("the container reads %q, %v; want %q", data, err, content)
				}
				if left, _ := filepath.Glob(filepath.Join(f.root, "pods/uid-1/volumes/*/cm/..2*")); len(left) != versions {
					t.Errorf("%d versions of the files, want %d", len(left), versions)
				}
			}
			update("2", 2)
			want("1", 2)
			update("3", 1)
			want("1", 2)
			if _, err := f.mount(t, p); err != nil {
				t.Fatal(err)
			}
			update("3", 1)
			want("3", 1)
		})
	}
}

// changingHost calls change before its first bind mount.
type changingHost struct {
	hostfs.Host
	change func()
}

func (h *changingHost) Bind(f *os.File, target string) error {
	if change := h.change; change != nil {
		h.change = nil
		change()
	}
	return h.Host.Bind(f, target)
}

// A ConfigMap changes between the moment when the agent opens a subPath and the moment when it mounts it. The container has the new content, and not the empty
// directory that is left of the old one.
func TestSubPathThatIsReplacedBeforeItIsMounted(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	h := &changingHost{}
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims})
	f.api.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"key": "1"}}
	p := aPod(vol("cm", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "key", Path: "d/app.conf"}}}}))
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "d"
	setUp(t, f, p)
	h.change = func() {
		f.api.configMaps["cm"].Data["key"] = "2"
		setUp(t, f, p)
	}
	got, err := f.mount(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(got, "app.conf")); err != nil || string(data) != "2" {
		t.Errorf("the container reads %q, %v", data, err)
	}
}

// If a subPath is missing and cannot be made, the error says why.
func TestSubPathThatCannotBeMade(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	root := t.TempDir()
	if _, err := (hostfs.Host{}).MountTmpfs(root, 0, 0o755, -1, unix.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = (hostfs.Host{}).Unmount(root) })
	p := aPod(vol("h", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: root}}))
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "a/b"
	_, err := f.mount(t, p)
	wantError(t, err, "h", `failed to prepare subPath "a/b": read-only file system`)
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

// A container swaps a directory for a link to the host while its pod's containers start again and again. The mount must
// always show the volume.
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

// A file system in user space whose process has died answers nothing but errors. After the driver has mounted the volume again, the container starts again.
func TestSubPathReplacesAMountOfADeadFileSystem(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	p := subPathPod("sub")
	setUp(t, f, p)
	got, err := f.mount(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(got, 0); err != nil {
		t.Fatal(err)
	}
	mountDead(t, got)
	if _, err := f.mount(t, p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir(t, f, aPod(emptyDir("e")), "e"), "sub/f"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(got, "f")); err != nil {
		t.Error(err)
	}
	// The kernel lets nobody mount on the mount of a file that an NFS server has removed.
	if points, _ := (hostfs.Host{}).MountPoints(filepath.Join(f.root, "pods")); len(points) != 1 {
		t.Errorf("mounts %v, want one", points)
	}
}

// mountDead mounts a file system in user space whose process has died on a directory. It skips the test if the kernel has none.
func mountDead(t *testing.T, dir string) {
	t.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("the kernel has no file systems in user space: %v", err)
	}
	err = unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd()))
	if err := errors.Join(err, fuse.Close()); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if _, err := os.Lstat(dir); !errors.Is(err, unix.ENOTCONN) {
		t.Fatalf("the file system is not dead: %v", err)
	}
}
