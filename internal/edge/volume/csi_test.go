package volume_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/csi"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

const driverName = "disks.example.com"

func (a *claimAPI) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if d := a.drivers[name]; d != nil {
		return d, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "csidrivers"}, name)
}

func (a *claimAPI) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if s := a.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (a *claimAPI) Attachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	if a.attached != nil {
		a.attached()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := a.attachments[name]; at != nil {
		return at, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "volumeattachments"}, name)
}

// csiFixture is a fixture with a driver, whose volumes are directories below disks.
type csiFixture struct {
	*fixture
	driver  *simcsi.Driver
	disks   string
	serves  string // the driver serves this name, too; "": only driverName
	seLinux *volume.SELinux
	health  bool          // the node asks for the condition of volumes
	socket  string        // where the driver answers
	changed chan struct{} // receives a value after each call of the driver, each operation and each change of InUse

	ops        operations
	mu         sync.Mutex
	registered *csi.Driver
	woken      []types.UID
	told       []string // events: kind, name and reason
	measured   []string // how volumes were measured
}

// events returns the events so far.
func (f *csiFixture) events() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told)
}

// visit makes the agent do its periodic work on all mounted volumes at once (expand them, request that they are published again), as if a
// minute had passed.
func (f *csiFixture) visit(t *testing.T) {
	t.Helper()
	f.VisitAll(t.Context())
}

// TearDown takes down the volumes of a pod. Then it unstages the volumes that no pod uses, which the agent does afterwards on its own.
func (f *csiFixture) TearDown(ctx context.Context, ref pod.Ref) error {
	return errors.Join(f.fixture.TearDown(ctx, ref), f.UnstageUnused(ctx))
}

// newCSI returns a fixture whose driver has the configuration cfg. Device gets the path of a loop device instead of the name of the volume.
func newCSI(t *testing.T, cfg simcsi.Config) *csiFixture {
	t.Helper()
	needRoot(t)
	f := &csiFixture{fixture: newFixture(t), disks: t.TempDir(), changed: make(chan struct{}, 1)}
	cfg.Name, cfg.NodeID, cfg.Called = driverName, "n", f.note
	if cfg.Mount == nil {
		cfg.Mount = func(volume, target string) error {
			disk := filepath.Join(f.disks, volume)
			return errors.Join(os.MkdirAll(disk, 0o755), unix.Mount(disk, target, "", unix.MS_BIND, ""))
		}
	}
	device := cfg.Device
	cfg.Device = func(volume, target string) error {
		loop, err := loopDevice(filepath.Join(f.disks, volume))
		switch {
		case err != nil:
			return err
		case device != nil:
			return device(loop, target)
		}
		return unix.Mount(loop, target, "", unix.MS_BIND, "")
	}
	cfg.Unmount = func(target string) error {
		if err := unix.Unmount(target, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	}
	f.claims.looked = f.note
	f.driver = simcsi.New(cfg)
	dir, err := os.MkdirTemp("", "csi") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	if err := f.driver.Serve(filepath.Join(dir, "csi.sock")); err != nil {
		t.Fatal(err)
	}
	f.claims.drivers[driverName] = &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: ptr(false), PodInfoOnMount: ptr(true), FSGroupPolicy: ptr(storagev1.FileFSGroupPolicy),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}}
	f.socket = filepath.Join(dir, "csi.sock")
	f.register(t, f.socket)
	f.Volumes = f.restart()
	t.Cleanup(func() {
		f.driver.SetFault("NodeUnpublishVolume", nil)
		f.driver.SetFault("NodeUnstageVolume", nil)
		uids, _ := f.Orphans(func(types.UID) bool { return false })
		for _, uid := range uids {
			if err := f.Remove(context.Background(), pod.Ref{UID: uid}); err != nil {
				t.Error(err)
			}
		}
		if err := f.UnstageUnused(context.Background()); err != nil {
			t.Error(err)
		}
		if broken := f.driver.Broken(); len(broken) > 0 {
			t.Errorf("rules of CSI that were broken: %q", broken)
		}
		if left, _ := (hostfs.Host{}).MountPoints(f.root); len(left) > 0 {
			t.Errorf("left mounted: %v", left)
		}
		if d := f.registeredDriver(); d != nil {
			d.Close()
		}
		f.driver.Close()
		disks, _ := os.ReadDir(f.disks)
		for _, disk := range disks {
			_ = hostfs.Host{}.DetachLoop(filepath.Join(f.disks, disk.Name()))
		}
		_ = os.RemoveAll(dir)
	})
	return f
}

// note wakes await. It does not block.
func (f *csiFixture) note() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// await waits until ok returns true. It calls ok after each change.
func (f *csiFixture) await(t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-f.changed:
		case <-t.Context().Done():
			t.Fatal("the test ended before the change")
		}
	}
}

// register makes the driver known to the node.
func (f *csiFixture) register(t *testing.T, socket string) {
	t.Helper()
	d, err := csi.New(driverName, socket, csi.Socket, nil)
	if err == nil {
		_, err = d.Ask(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registered = d
}

func (f *csiFixture) registeredDriver() *csi.Driver {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.registered
}

// away makes the driver unknown to the node; back makes it known again.
func (f *csiFixture) away() (back func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.registered
	f.registered = nil
	return func() {
		f.mu.Lock()
		f.registered = d
		f.mu.Unlock()
		f.DriverRegistered(driverName)
	}
}

// restart returns new Volumes on the same root directory, as a new agent creates them.
func (f *csiFixture) restart() *volume.Volumes {
	return volume.New(volume.Config{
		RootDir: f.root, Host: hostfs.Host{}, Objects: f.api, Claims: f.claims, ClaimStatus: f.claims, InUseChanged: f.note,
		SELinux: f.seLinux, Health: f.health, Operated: func(op volume.Operation) { f.ops.ended(op); f.note() },
		Measured: func(source string, _ time.Duration) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.measured = append(f.measured, source)
		},
		Event: func(ref *v1.ObjectReference, _, reason, _ string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.told = append(f.told, ref.Kind+" "+ref.Name+" "+reason)
		},
		Driver: func(name string) volume.Driver {
			if d := f.registeredDriver(); d != nil && (name == driverName || name == f.serves) {
				return d
			}
			return nil
		},
		Notify: func(uid types.UID) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.woken = append(f.woken, uid)
		},
	})
}

// disk binds a claim to a volume of the driver.
func (f *csiFixture) disk(name string, modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolume {
	pv := f.claims.bind(name, v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
		Driver: driverName, VolumeHandle: "disk-" + name, FSType: "ext4", VolumeAttributes: map[string]string{"pool": "a"}}}, modes...)
	pv.Spec.AccessModes = modes
	return pv
}

func podOf(uid types.UID, volumes ...v1.Volume) *v1.Pod {
	p := aPod(volumes...)
	p.UID, p.Name = uid, "pod-"+string(uid)
	return p
}

// Two pods share a staged volume. It is unstaged after the last of these pods has ended, also if another agent runs by then. The data
// stays.
func TestCSIVolumeIsStagedOnceAndUnstagedAtTheEnd(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	pv := f.disk("d", v1.ReadWriteOnce)
	pv.Spec.MountOptions = []string{"noatime"}
	pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "vault", Name: "stage"}
	pv.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "vault", Name: "publish"}
	a, b := podOf("a", claim("v", "d", false)), podOf("b", claim("v", "d", false))
	a.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(77))}
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: a}), "v", "secret vault/stage of the volume not found: create it")
	f.claims.secrets["vault/stage"] = &v1.Secret{Data: map[string][]byte{"key": []byte("s")}}
	f.claims.secrets["vault/publish"] = &v1.Secret{Data: map[string][]byte{"key": []byte("p")}}
	setUp(t, f.fixture, a)
	setUp(t, f.fixture, a)
	r := f.driver.LastPublish()
	if got := []string{r.VolumeContext["pool"], r.VolumeContext["csi.storage.k8s.io/pod.name"], r.VolumeContext["csi.storage.k8s.io/ephemeral"], r.Secrets["key"],
		r.VolumeCapability.GetMount().GetFsType(), strings.Join(r.VolumeCapability.GetMount().GetMountFlags(), ",")}; !slices.Equal(got, []string{"a", "pod-a", "false", "p", "ext4", "noatime"}) {
		t.Errorf("the request to publish: %q", got)
	}
	at := dir(t, f.fixture, a, "v")
	if want := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/mount"); at != want {
		t.Errorf("published at %s, want %s", at, want)
	}
	if o := ownerOf(t, at); o.GID != 77 {
		t.Errorf("the volume belongs to %v", o)
	}
	if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var data map[string]string
	text, err := os.ReadFile(filepath.Join(filepath.Dir(at), "vol_data.json"))
	if err := errors.Join(err, json.Unmarshal(text, &data)); err != nil || data["volumeHandle"] != "disk-d" || data["driverName"] != driverName || data["specVolID"] != "pv-d" {
		t.Errorf("vol_data.json: %s, %v", text, err)
	}
	f.Volumes = f.restart()
	setUp(t, f.fixture, b)
	if n := f.driver.Count("NodeStageVolume"); n != 1 {
		t.Errorf("staged %d times for two pods", n)
	}
	if n := f.driver.Count("NodePublishVolume"); n != 2 {
		t.Errorf("published %d times for two pods", n)
	}
	for i, uid := range []types.UID{"a", "b"} {
		f.Volumes = f.restart()
		if err := errors.Join(f.TearDown(t.Context(), pod.Ref{UID: uid}), f.TearDown(t.Context(), pod.Ref{UID: uid})); err != nil {
			t.Fatal(err)
		}
		if n := f.driver.Count("NodeUnstageVolume"); n != i {
			t.Errorf("unstaged %d times after the end of %d pods", n, i+1)
		}
	}
	if staged, published := f.driver.Holds(); staged+published != 0 {
		t.Errorf("%d staged, %d published volumes are left", staged, published)
	}
	if left, _ := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi", driverName, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(f.disks, "disk-d", "file")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
}

func TestInlineCSIVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, MountGroup: true})
	f.claims.drivers[driverName].Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	f.claims.secrets["ns/s"] = &v1.Secret{Data: map[string][]byte{"key": []byte("p")}}
	p := podOf("a", vol("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: driverName, ReadOnly: ptr(true), VolumeAttributes: map[string]string{"x": "y"}, NodePublishSecretRef: &v1.LocalObjectReference{Name: "s"}}}))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(77))}
	setUp(t, f.fixture, p)
	r := f.driver.LastPublish()
	if r.VolumeId != csispec.InlineHandle("a", "v") || r.StagingTargetPath != "" || !r.Readonly || r.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true" || r.VolumeContext["x"] != "y" ||
		r.Secrets["key"] != "p" || r.VolumeCapability.GetMount().GetVolumeMountGroup() != "77" || !strings.Contains(r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"], `"vault":{"token":"t0ken"`) {
		t.Errorf("the request to publish: %v", r)
	}
	mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil || !mounts[0].Readonly || mounts[0].HostPath != filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/v/mount") {
		t.Errorf("%v, %v", mounts, err)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if n := f.driver.Count("NodeStageVolume") + f.driver.Count("NodeUnstageVolume"); n != 0 {
		t.Errorf("an inline volume was staged: %v", f.driver.Calls())
	}
	f.claims.drivers[driverName].Spec.VolumeLifecycleModes = nil
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "offers no inline volumes")
	delete(f.claims.drivers, driverName)
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "has no CSIDriver object")
}

// A pod waits for a driver that is not registered, at its start and at its end. A pod that never got its volume ends without the driver.
func TestCSIDriverThatIsAway(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	p := podOf("a", claim("v", "d", false))
	back := f.away()
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "waits for CSI driver disks.example.com to register on this node")
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Errorf("the end of a pod without its volume: %v", err)
	}
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "waits for CSI driver")
	back()
	if !slices.Contains(f.woken, "a") {
		t.Errorf("woken: %v", f.woken)
	}
	setUp(t, f.fixture, p)
	back = f.away()
	err := f.TearDown(t.Context(), pod.RefOf(p))
	if err == nil || !strings.Contains(err.Error(), "waits for CSI driver disks.example.com to register on this node, which has to unmount the volume") {
		t.Errorf("the end of a pod while its driver is away: %v", err)
	}
	if _, err := os.Stat(filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/vol_data.json")); err != nil {
		t.Errorf("what the driver needs to unmount is gone: %v", err)
	}
	back()
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Error(err)
	}
}

// Errors contain the driver's text. A call that failed is repeated, whether it had an effect or not.
func TestCSIDriverThatFails(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for _, after := range []bool{false, true} {
			f := newCSI(t, simcsi.Config{Stage: true})
			f.disk("d", v1.ReadWriteOnce)
			p := podOf("a", claim("v", "d", false))
			f.driver.SetFault(method, &simcsi.Fault{Err: status.Error(codes.Internal, "the disk is on fire"), After: after})
			var failed error
			if err := f.SetUp(t.Context(), volume.Pod{Pod: p}); err != nil {
				failed = err
				f.driver.SetFault(method, nil)
				f.Volumes = f.restart()
				setUp(t, f.fixture, p)
			}
			if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
				failed = err
				f.driver.SetFault(method, nil)
				f.Volumes = f.restart()
				if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
					t.Errorf("%s, after %v: %v", method, after, err)
				}
			}
			if failed == nil || !strings.Contains(failed.Error(), "CSI driver disks.example.com, "+method+": the disk is on fire") {
				t.Errorf("%s, after %v: the error is %v", method, after, failed)
			}
			if staged, published := f.driver.Holds(); staged+published != 0 {
				t.Errorf("%s, after %v: %d staged, %d published volumes are left", method, after, staged, published)
			}
		}
	}
}

// A driver that hangs for one volume delays no pod that has other volumes, and the pod of the volume can end.
func TestCSIDriverThatHangs(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	f.claims.bind("l", local(t.TempDir()))
	f.driver.SetFault("NodePublishVolume", &simcsi.Fault{Hang: make(chan struct{})})
	hurt := podOf("a", claim("v", "d", false))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.SetUp(ctx, volume.Pod{Pod: hurt}) }()
	f.await(t, func() bool { return f.driver.Count("NodePublishVolume") > 0 })
	other := podOf("b", claim("v", "l", false))
	setUp(t, f.fixture, other)
	if names, ok := f.InUse(); !ok || len(names) != 0 {
		t.Errorf("in use: %v, %v: the driver's volumes are not attached", names, ok)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a canceled set-up has no error")
	}
	if err := f.TearDown(t.Context(), pod.RefOf(hurt)); err != nil {
		t.Errorf("the end of the pod: %v", err)
	}
}

// The end of the time for a call to a driver is the cause of a mount that does not end. Another error of the driver is none.
func TestCSIDriverThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for method, fault := range map[string]error{
		"NodeStageVolume":   status.Error(codes.DeadlineExceeded, "the storage does not answer"),
		"NodePublishVolume": status.Error(codes.Internal, "the disk is on fire"),
	} {
		f := newCSI(t, simcsi.Config{Stage: true})
		f.disk("d", v1.ReadWriteOnce)
		f.driver.SetFault(method, &simcsi.Fault{Err: fault})
		err := f.SetUp(t.Context(), volume.Pod{Pod: podOf("a", claim("v", "d", false))})
		want := pod.LackNone
		if status.Code(fault) == codes.DeadlineExceeded {
			want = pod.LackMount
		}
		var e *volume.Error
		if !errors.As(err, &e) || e.Lack != want {
			t.Errorf("%s fails with %v: %+v, want lack %d", method, fault, e, want)
		}
	}
}

// If a driver cannot unmount its volume, the other volumes of the pod are unmounted nevertheless.
func TestCSIDriverKeepsNoOtherVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	memory := v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}
	p := podOf("a", claim("v", "d", false), memory)
	setUp(t, f.fixture, p)
	mounted := func(kind string) int {
		points, err := (hostfs.Host{}).MountPoints(filepath.Join(f.root, "pods/a/volumes", kind))
		if err != nil {
			t.Fatal(err)
		}
		return len(points)
	}
	if mounted("kubernetes.io~empty-dir") != 1 || mounted("kubernetes.io~csi") != 1 {
		t.Fatalf("%d and %d mounts", mounted("kubernetes.io~empty-dir"), mounted("kubernetes.io~csi"))
	}
	f.driver.SetFault("NodeUnpublishVolume", &simcsi.Fault{Err: status.Error(codes.Internal, "the disk is on fire")})
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err == nil {
		t.Error("the driver's error is lost")
	}
	if mounted("kubernetes.io~empty-dir") != 0 || mounted("kubernetes.io~csi") != 1 {
		t.Errorf("after a failed end %d and %d mounts, want 0 and 1", mounted("kubernetes.io~empty-dir"), mounted("kubernetes.io~csi"))
	}
	f.driver.SetFault("NodeUnpublishVolume", nil)
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Error(err)
	}
}

// If a driver says that it published a volume, and did not, the set-up fails.
func TestCSIDriverThatLies(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.disk("d", v1.ReadWriteOnce)
	p := podOf("a", claim("v", "d", false))
	at := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/mount")
	setUp(t, f.fixture, p)
	if err := errors.Join(unix.Unmount(at, 0), os.Remove(at)); err != nil {
		t.Fatal(err)
	}
	// The driver does nothing, because it believes that the volume is published.
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "there is nothing at its target_path")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(filepath.Join(f.disks, "disk-d"), at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
}

// A file that a driver left in its target path without a mount is not deleted.
func TestDataBesideAMountIsNotDeleted(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.disk("d", v1.ReadWriteOnce)
	p := podOf("a", claim("v", "d", false))
	setUp(t, f.fixture, p)
	at := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/mount")
	if err := errors.Join(unix.Unmount(at, 0), os.WriteFile(filepath.Join(at, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(filepath.Join(at, "file")); err != nil {
		t.Errorf("deleted: %v", err)
	}
}

// A volume that has to be attached is mounted only when the Node's status lists it as in use and as attached. It is in use until it is
// unmounted, also for an agent that finds it mounted by upstream's kubelet.
func TestAttachedVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	f.claims.drivers[driverName].Spec.AttachRequired = nil
	p := podOf("a", claim("v", "d", false))
	name := csispec.UniqueName(driverName, "disk-d")
	wantInUse := func(when string, want ...v1.UniqueVolumeName) {
		t.Helper()
		if got, ok := f.InUse(); !ok || !slices.Equal(got, want) {
			t.Errorf("in use %s: %v, want %v", when, got, want)
		}
	}
	wantInUse("before")
	f.claims.attached = func() {
		f.claims.set(func() {
			if len(f.claims.seen.Status.VolumesInUse) == 0 {
				t.Error("the set-up goes on before the Node's status lists the volume as in use")
			}
		})
	}
	result := make(chan error)
	go func() { result <- f.SetUp(context.WithoutCancel(t.Context()), volume.Pod{Pod: p}) }()
	f.await(t, func() bool { names, _ := f.InUse(); return len(names) > 0 })
	wantInUse("while the set-up waits", name)
	attachment := csispec.Attachment("disk-d", driverName, "n")
	f.claims.set(func() {
		f.claims.attachments[attachment] = &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{
			Attached: true, AttachmentMetadata: map[string]string{"device": "sdx"},
			AttachError: &storagev1.VolumeError{Message: "an earlier try failed", ErrorCode: new(int32(codes.ResourceExhausted))},
		}}
		f.claims.node.Status.VolumesAttached = []v1.AttachedVolume{{Name: name}}
	})
	looks := func() (n int) { f.claims.set(func() { n = f.claims.looks }); return n }
	before := looks()
	f.NodeChanged()
	f.await(t, func() bool { return looks() > before })
	f.claims.set(func() { f.claims.node.Status.VolumesInUse = []v1.UniqueVolumeName{name} })
	f.Reported([]v1.UniqueVolumeName{name})
	f.NodeChanged()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if got := f.driver.LastPublish().PublishContext["device"]; got != "sdx" {
		t.Errorf("publish context %q", got)
	}
	f.AttachRequired(driverName, false)
	wantInUse("when the driver needs no attachment any more, so that the VolumeAttachment can be deleted")
	f.AttachRequired(driverName, true)
	wantInUse("when the driver needs one again", name)
	if err := os.RemoveAll(filepath.Join(f.root, "pods/a/claims")); err != nil { // upstream's kubelet has no records
		t.Fatal(err)
	}
	f.Volumes = f.restart()
	wantInUse("after a restart", name)
	f.driver.SetFault("NodeUnstageVolume", &simcsi.Fault{Err: status.Error(codes.Internal, "busy")})
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err == nil {
		t.Error("no error")
	}
	f.driver.SetFault("NodeUnstageVolume", nil)
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	wantInUse("at the end")
}
