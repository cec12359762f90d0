package volume_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/edge/volume"
)

// owner is the mode, the user and the group of a file, as ls shows them.
type owner struct {
	Mode     os.FileMode
	UID, GID uint32
}

func ownerOf(t *testing.T, path string) owner {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return owner{info.Mode(), st.Uid, st.Gid}
}

func TestEmptyDirIsOpenToAllAndLeftAloneThen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod(vol("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	setUp(t, f, p)
	d := dir(t, f, p, "v")
	if want := filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/v"); d != want {
		t.Errorf("lies at %s, want %s", d, want)
	}
	if got := ownerOf(t, d).Mode; got != os.ModeDir|0o777 {
		t.Errorf("mode %v", got)
	}
	// The pod changes the volume's mode; a later SetUp must not undo that.
	if err := os.WriteFile(filepath.Join(d, "data"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d, 0o700); err != nil {
		t.Fatal(err)
	}
	setUp(t, f, p)
	if got := ownerOf(t, d).Mode; got != os.ModeDir|0o700 {
		t.Errorf("mode changed to %v", got)
	}
	if _, err := os.Stat(filepath.Join(d, "data")); err != nil {
		t.Error(err)
	}
}

func TestUnusedVolumesAreNotCreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod()
	p.Spec.Volumes = []v1.Volume{vol("v", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "does-not-exist"}})}
	setUp(t, f, p)
}

func TestMemoryBackedVolumes(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.api.secrets["s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	p := aPod(
		vol("mem", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("8Mi"))}}),
		vol("nolimit", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		vol("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}),
	)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(4242))}
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}
	node := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	for range 2 { // the second call must mount nothing over the first mount
		if err := f.SetUp(t.Context(), volume.Pod{Pod: p, NodeAllocatable: node}); err != nil {
			t.Fatal(err)
		}
	}
	for name, size := range map[string]uint64{"mem": 8 << 20, "nolimit": 16 << 20, "secret": 16 << 20} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir(t, f, p, name), &st); err != nil {
			t.Fatal(err)
		}
		if st.Type != unix.TMPFS_MAGIC || st.Blocks*uint64(st.Bsize) != size {
			t.Errorf("%s: type %x, size %d, want a tmpfs of %d", name, st.Type, st.Blocks*uint64(st.Bsize), size)
		}
	}
	want := owner{os.ModeDir | os.ModeSticky | os.ModeSetgid | 0o777, 0, 4242}
	if diff := cmp.Diff(want, ownerOf(t, dir(t, f, p, "mem"))); diff != "" {
		t.Errorf("root of emptyDir: -want +got:\n%s", diff)
	}
	if mounts, _ := host(t).MountPoints(filepath.Join(f.root, "pods")); len(mounts) != 3 {
		t.Errorf("mounts %v, want 3", mounts)
	}
}

func TestHugePagesSayWhatTheyNeed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	huge := func(medium v1.StorageMedium) *v1.Pod {
		return aPod(vol("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}))
	}
	err := f.SetUp(t.Context(), volume.Pod{Pod: huge("HugePages")})
	wantError(t, err, "v", "exactly one size, not 0")
	err = f.SetUp(t.Context(), volume.Pod{Pod: huge("HugePages-2Mi")})
	wantError(t, err, "v", "no container requests hugepages-2Mi")
	err = f.SetUp(t.Context(), volume.Pod{Pod: huge("HugePages-1e-2147483648")})
	wantError(t, err, "v", "names no page size")
	endless := huge("HugePages")
	endless.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-1e-2147483648": resource.MustParse("3Mi")}
	err = f.SetUp(t.Context(), volume.Pod{Pod: endless})
	wantError(t, err, "v", "the exponent of a quantity has at most three digits")
	p := huge("HugePages-3Mi")
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-3Mi": resource.MustParse("3Mi")}
	needRoot(t)
	err = f.SetUp(t.Context(), volume.Pod{Pod: p})
	wantError(t, err, "v", "huge pages of 3Mi cannot be mounted")
	err = f.SetUp(t.Context(), volume.Pod{Pod: huge("Floppy")})
	wantError(t, err, "v", `unknown storage medium "Floppy"`)
}

func TestFSGroupAndTokenOwner(t *testing.T) {
	t.Parallel()
	needRoot(t)
	projected := v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}},
	}}}
	tests := []struct {
		name               string
		group              *int64
		podUser, otherUser *int64
		token, file        owner
	}{
		{"nothing known: readable by all", nil, nil, nil, owner{0o644, 0, 0}, owner{0o644, 0, 0}},
		{"one user: the token is theirs alone", nil, ptr(int64(1000)), nil, owner{0o600, 1000, 0}, owner{0o644, 0, 0}},
		{"two users: nobody's", nil, ptr(int64(1000)), ptr(int64(2000)), owner{0o644, 0, 0}, owner{0o644, 0, 0}},
		{"a group: readable by the group", ptr(int64(77)), nil, nil, owner{0o640, 0, 77}, owner{0o644, 0, 77}},
		{"a group and a user", ptr(int64(77)), ptr(int64(1000)), nil, owner{0o640, 1000, 77}, owner{0o644, 0, 77}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.api.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"x": "y"}}
			p := aPod(vol("v", projected), vol("e", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: tt.group, RunAsUser: tt.podUser}
			if tt.otherUser != nil {
				p.Spec.InitContainers = []v1.Container{{Name: "i", SecurityContext: &v1.SecurityContext{RunAsUser: tt.otherUser}}}
			}
			setUp(t, f, p)
			d := dir(t, f, p, "v")
			if diff := cmp.Diff(tt.token, ownerOf(t, filepath.Join(d, "token"))); diff != "" {
				t.Errorf("token: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tt.file, ownerOf(t, filepath.Join(d, "x"))); diff != "" {
				t.Errorf("file: -want +got:\n%s", diff)
			}
			if tt.group == nil {
				return
			}
			want := owner{os.ModeDir | os.ModeSetgid | 0o777, 0, uint32(*tt.group)}
			if diff := cmp.Diff(want, ownerOf(t, dir(t, f, p, "e"))); diff != "" {
				t.Errorf("emptyDir: -want +got:\n%s", diff)
			}
		})
	}
}

func TestHostPathTypes(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	file, sub, link, sock := filepath.Join(base, "file"), filepath.Join(base, "dir"), filepath.Join(base, "link"), filepath.Join(base, "s")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(sub, 0o700), os.Symlink(sub, link)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tests := []struct {
		typ  v1.HostPathType
		path string
		err  string
	}{
		{v1.HostPathUnset, filepath.Join(base, "no"), ""},
		{v1.HostPathDirectory, sub, ""},
		{v1.HostPathDirectory, link, ""},
		{v1.HostPathDirectory, file, "is not a directory (it is a file)"},
		{v1.HostPathDirectory, filepath.Join(base, "no"), "is not a directory (it does not exist on this node)"},
		{v1.HostPathDirectoryOrCreate, filepath.Join(base, "new/deep"), ""},
		{v1.HostPathDirectoryOrCreate, file, "is not a directory"},
		{v1.HostPathFile, file, ""},
		{v1.HostPathFile, sub, "is not a file (it is a directory)"},
		{v1.HostPathFileOrCreate, filepath.Join(base, "newfile"), ""},
		{v1.HostPathFileOrCreate, filepath.Join(base, "none/newfile"), "makes no parent directory"},
		{v1.HostPathFileOrCreate, sub, "is not a file"},
		{v1.HostPathSocket, sock, ""},
		{v1.HostPathSocket, file, "is not a socket file"},
		{v1.HostPathCharDev, "/dev/null", ""},
		{v1.HostPathCharDev, sock, "is not a character device (it is a socket)"},
		{v1.HostPathBlockDev, "/dev/null", "is not a block device (it is a character device)"},
		{"Tape", file, `hostPath.type "Tape" is unknown`},
	}
	f := newFixture(t)
	for _, tt := range tests {
		p := aPod(vol("v", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: tt.path, Type: ptr(tt.typ)}}))
		err := f.SetUp(t.Context(), volume.Pod{Pod: p})
		if tt.err != "" {
			wantError(t, err, "v", tt.err)
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", tt.typ, tt.path, err)
			continue
		}
		if got := dir(t, f, p, "v"); got != tt.path {
			t.Errorf("%s: mounted from %s, want %s", tt.typ, got, tt.path)
		}
	}
	if _, err := os.Stat(filepath.Join(base, "no")); err == nil {
		t.Error("type \"\" made the path")
	}
	if got := ownerOf(t, filepath.Join(base, "newfile")).Mode; got != 0o644 {
		t.Errorf("FileOrCreate made mode %v", got)
	}
	if got := ownerOf(t, filepath.Join(base, "new")).Mode.Perm(); got != 0o755 {
		t.Errorf("DirectoryOrCreate made mode %v", got)
	}
}

func TestLiveUpdate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.api.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "1"}}
	src := v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
	}}}
	p := aPod(vol("v", src))
	setUp(t, f, p)
	d := dir(t, f, p, "v")
	data := func() string {
		link, err := os.Readlink(filepath.Join(d, "..data"))
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	first := data()
	setUp(t, f, p)
	if data() != first {
		t.Error("unchanged content was written again")
	}
	f.api.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"a": "2", "c": "2"}}
	f.api.token = "t0ken2"
	p = p.DeepCopy()
	p.Labels["new"] = "label"
	setUp(t, f, p)
	if data() == first {
		t.Error("new content lies where the old was")
	}
	wantTree(t, d, map[string]string{
		"a": "-rw-r--r-- 2", "c": "-rw-r--r-- 2", "token": "-rw-r--r-- t0ken2", "labels": "-rw-r--r-- a=\"b\"\nnew=\"label\"",
	})
	// If a source is deleted, its files stay, because the containers are still running.
	delete(f.api.configMaps, "cm")
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", `configmap "cm" not found`)
	if got := tree(t, d)["a"]; got != "-rw-r--r-- 2" {
		t.Errorf("a is %q after its source went away", got)
	}
}

func TestOneFailingVolumeDoesNotKeepTheOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod(
		vol("bad", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "no"}}),
		vol("good", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		vol("worse", v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}),
	)
	err := f.SetUp(t.Context(), volume.Pod{Pod: p})
	wantError(t, err, "bad", `secret "no" not found`)
	if !strings.Contains(err.Error(), "rbd") || !errors.Is(err, volume.ErrUnsupported) {
		t.Errorf("the second failure is missing: %v", err)
	}
	if _, err := os.Stat(filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/good")); err != nil {
		t.Error(err)
	}
}

func TestNamesThatAreNoNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod(vol("../../../evil", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "../../../evil", "cannot be a directory name")
	p = aPod()
	p.UID = "../x"
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "", "metadata.uid")
}

func TestWithoutAPIServer(t *testing.T) {
	t.Parallel()
	v := volume.New(volume.Config{RootDir: t.TempDir(), Host: host(t)})
	p := aPod(vol("v", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}))
	wantError(t, v.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "no API server")
}
