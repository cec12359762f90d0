package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// api is a fake Objects that serves the ConfigMaps, Secrets and tokens of a test.
type api struct {
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	token      string
	tokenErr   error
}

func (a *api) ConfigMap(_ context.Context, _ *v1.Pod, name string) (*v1.ConfigMap, error) {
	if cm := a.configMaps[name]; cm != nil {
		return cm, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (a *api) Secret(_ context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
	if s := a.secrets[name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (a *api) ServiceAccountToken(context.Context, *v1.Pod, string, *int64) (string, time.Time, error) {
	return a.token, time.Time{}, a.tokenErr
}

// dirHost is the real host if the test runs as root. Otherwise it mounts nothing: memory-backed volumes are plain
// directories.
type dirHost struct{ hostfs.Host }

func (dirHost) MountTmpfs(string, int64, fs.FileMode, int, uintptr) (bool, error) { return false, nil }

func host(t *testing.T) volume.Host {
	t.Helper()
	if os.Geteuid() != 0 {
		return dirHost{}
	}
	return hostfs.Host{}
}

func needRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("needs root: mounts")
	default:
		t.Skip("needs root: mounts")
	}
}

type fixture struct {
	*volume.Volumes
	api    *api
	claims *claimAPI
	root   string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{api: &api{configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}, token: "t0ken"}, claims: newClaimAPI(), root: t.TempDir()}
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: host(t), Objects: f.api, Claims: f.claims})
	t.Cleanup(func() {
		uids, err := f.Orphans(func(types.UID) bool { return false })
		if err != nil {
			t.Error(err)
		}
		for _, uid := range uids {
			if err := f.Remove(context.Background(), pod.Ref{UID: uid}); err != nil {
				t.Error(err)
			}
		}
	})
	return f
}

// aPod returns a pod with the volumes; its one container mounts each at /<name>.
func aPod(volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-1", Labels: map[string]string{"a": "b"}},
		Spec:       v1.PodSpec{Volumes: volumes, Containers: []v1.Container{{Name: "c"}}},
	}
	for _, v := range volumes {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return p
}

func vol(name string, src v1.VolumeSource) v1.Volume { return v1.Volume{Name: name, VolumeSource: src} }

func setUp(t *testing.T, f *fixture, p *v1.Pod) {
	t.Helper()
	if err := f.SetUp(t.Context(), volume.Pod{Pod: p}); err != nil {
		t.Fatal(err)
	}
}

// dir returns the host path of the volume that the container mounts at /<name>.
func dir(t *testing.T, f *fixture, p *v1.Pod, name string) string {
	t.Helper()
	mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if m.ContainerPath == "/"+name {
			return m.HostPath
		}
	}
	t.Fatalf("no mount at /%s", name)
	return ""
}

// tree lists the files that a container sees below root: path, mode, content. It follows links, and leaves out the names that begin with
// "..", which the agent uses to replace all files of a volume at once.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	got := map[string]string{}
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(root, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "..") {
				continue
			}
			path := filepath.Join(rel, e.Name())
			info, err := os.Stat(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(path)
				continue
			}
			data, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			got[path] = info.Mode().Perm().String() + " " + string(data)
		}
	}
	walk("")
	return got
}

func wantTree(t *testing.T, root string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, tree(t, root)); diff != "" {
		t.Errorf("files in %s (-want +got):\n%s", filepath.Base(root), diff)
	}
}

func ptr[T any](v T) *T { return &v }

func TestFilesVolumes(t *testing.T) {
	t.Parallel()
	optional := ptr(true)
	tests := []struct {
		name string
		src  v1.VolumeSource
		want map[string]string
		err  string // substring of the error
	}{
		{"configMap: all keys", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}},
			map[string]string{"text": "-rw-r--r-- hello", "bin": "-rw-r--r-- \x00\x01"}, ""},
		{"configMap: items have paths and modes", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, DefaultMode: ptr(int32(0o400)),
			Items: []v1.KeyToPath{{Key: "text", Path: "a/b/t"}, {Key: "bin", Path: "a/x", Mode: ptr(int32(0o755))}}}},
			map[string]string{"a/b/t": "-r-------- hello", "a/x": "-rwxr-xr-x \x00\x01"}, ""},
		{"configMap: missing", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "no"}}},
			nil, `configmap "no" not found`},
		{"configMap: missing but optional", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "no"}, Optional: optional}},
			map[string]string{}, ""},
		{"configMap: missing key", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
			Items: []v1.KeyToPath{{Key: "k", Path: "p"}}}}, nil, `non-existent key "k"`},
		{"configMap: missing key but optional", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Optional: optional,
			Items: []v1.KeyToPath{{Key: "k", Path: "p"}, {Key: "text", Path: "q"}}}}, map[string]string{"q": "-rw-r--r-- hello"}, ""},
		{"configMap: path that leaves the volume", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
			Items: []v1.KeyToPath{{Key: "text", Path: "a/../../x"}}}}, nil, "must not contain '..'"},
		{"configMap: path of the writer's", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
			Items: []v1.KeyToPath{{Key: "text", Path: "..data"}}}}, nil, "must not start with '..'"},
		{"configMap: file and directory", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
			Items: []v1.KeyToPath{{Key: "text", Path: "a"}, {Key: "bin", Path: "a/b"}}}}, nil, "is a file and"},
		{"secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr(int32(0o440))}},
			map[string]string{"password": "-r--r----- pw"}, ""},
		{"secret: missing", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "no"}}, nil, `secret "no" not found: create it in namespace "ns"`},
		{"downwardAPI", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "one", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['a']"}, Mode: ptr(int32(0o600))},
			{Path: "mem", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}},
		}}}, map[string]string{"labels": "-rw-r--r-- a=\"b\"", "one": "-rw------- b", "mem": "-rw-r--r-- 64"}, ""},
		{"downwardAPI: no such container", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "mem", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "z", Resource: "limits.memory"}}}}}, nil, `item "mem": container z not found`},
		{"projected: what every pod has", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "text", Path: "ca.crt"}}}},
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}, map[string]string{"token": "-rw-r--r-- t0ken", "ca.crt": "-rw-r--r-- hello", "password": "-rw-r--r-- pw", "namespace": "-rw-r--r-- ns"}, ""},
		{"projected: every failing source is named", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "no"}}},
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "x"}},
		}}}, nil, "sources[1]: clusterTrustBundle: this node has no API server"},
		{"projected: podCertificate", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{PodCertificate: &v1.PodCertificateProjection{}}}}}, nil, "podCertificate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.api.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"text": "hello"}, BinaryData: map[string][]byte{"bin": {0, 1}}}
			f.api.secrets["s"] = &v1.Secret{Data: map[string][]byte{"password": []byte("pw")}}
			p := aPod(vol("v", tt.src))
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
			err := f.SetUp(t.Context(), volume.Pod{Pod: p})
			if tt.err != "" {
				wantError(t, err, "v", tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantTree(t, dir(t, f, p, "v"), tt.want)
		})
	}
}

func wantError(t *testing.T, err error, name, substr string) {
	t.Helper()
	var e *volume.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is no *volume.Error", err)
	}
	if strings.Contains(e.Message, "\n") {
		t.Errorf("message has several lines: %s", e.Message)
	}
	if e.Volume != name || e.Reason != "FailedMount" || !strings.Contains(e.Message, substr) {
		t.Errorf("error of volume %q, reason %s: %s; want volume %q and %q", e.Volume, e.Reason, e.Message, name, substr)
	}
}

// The error of SetUp becomes the text of an event that users read. The test compares the whole text.
func TestMessagesAreForPeople(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := aPod(
		vol("v", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "no"}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "x", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.nothing"}}}}}}}}),
		vol("w", v1.VolumeSource{RBD: &v1.RBDVolumeSource{RBDImage: "x"}}))
	want := `volume "v": sources[0]: configmap "no" not found: create it in namespace "ns", or mark it optional; the volume is made as soon as it exists; ` +
		`sources[1]: downwardAPI item "x": field label not supported: metadata.nothing; ` +
		`volume "w": volume kind is not supported: rbd (what this node agent supports is in the table of its README; ` +
		`use emptyDir, hostPath, configMap, secret, downwardAPI, projected, image, nfs, iscsi, fc, csi or persistentVolumeClaim, or another node)`
	err := f.SetUp(t.Context(), volume.Pod{Pod: p})
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !errors.Is(err, volume.ErrUnsupported) || !apierrors.IsNotFound(err) {
		t.Errorf("the causes are lost: %v", err)
	}
}

func TestUnsupportedKindsAreNamed(t *testing.T) {
	t.Parallel()
	for want, src := range map[string]v1.VolumeSource{
		"rbd":     {RBD: &v1.RBDVolumeSource{}},
		"quobyte": {Quobyte: &v1.QuobyteVolumeSource{}},
	} {
		f := newFixture(t)
		err := f.SetUp(t.Context(), volume.Pod{Pod: aPod(vol("v", src))})
		wantError(t, err, "v", want)
		if !errors.Is(err, volume.ErrUnsupported) {
			t.Errorf("%s: not ErrUnsupported: %v", want, err)
		}
	}
}

// SetUp refuses a gitRepo volume with an error that names this kind, because the agent never runs git. CVE-2025-1767 concerns gitRepo too.
func TestCVE202410220GitRepoIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	err := f.SetUp(t.Context(), volume.Pod{Pod: aPod(vol("v", v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{Repository: "/etc", Directory: "."}}))})
	wantError(t, err, "v", "gitRepo")
	if !errors.Is(err, volume.ErrUnsupported) {
		t.Errorf("not ErrUnsupported: %v", err)
	}
}
