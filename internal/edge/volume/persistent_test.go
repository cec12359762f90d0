package volume_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// claimAPI has the objects behind claims and CSI volumes, and counts requests.
type claimAPI struct {
	mu     sync.Mutex
	claims map[string]*v1.PersistentVolumeClaim
	pvs    map[string]*v1.PersistentVolume
	asked  int
	down   error

	patches []string // the patches of the claims' statuses

	drivers     map[string]*storagev1.CSIDriver
	secrets     map[string]*v1.Secret
	attachments map[string]*storagev1.VolumeAttachment
	attached    func() // called for each request for an attachment, unless it is nil
	node        v1.Node
	looks       int     // number of calls of Node
	seen        v1.Node // the result of the last call of Node
	looked      func()  // called after each call of Node and each change of a claim, unless it is nil
}

// set calls f, which changes the objects, with the lock held.
func (a *claimAPI) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func newClaimAPI() *claimAPI {
	return &claimAPI{
		claims: map[string]*v1.PersistentVolumeClaim{}, pvs: map[string]*v1.PersistentVolume{},
		drivers: map[string]*storagev1.CSIDriver{}, secrets: map[string]*v1.Secret{}, attachments: map[string]*storagev1.VolumeAttachment{},
		node: v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n", Labels: map[string]string{v1.LabelHostname: "n"}}},
	}
}

func (a *claimAPI) Claim(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if c := a.claims[name]; c != nil || a.down != nil {
		return c, a.down
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumeclaims"}, name)
}

func (a *claimAPI) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if pv := a.pvs[name]; pv != nil || a.down != nil {
		return pv, a.down
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumes"}, name)
}

func (a *claimAPI) Node() *v1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	a.node.DeepCopyInto(&a.seen)
	if a.looked != nil {
		a.looked()
	}
	return a.node.DeepCopy()
}

// bind makes a claim with this name, and a persistent volume to which the claim is bound.
func (a *claimAPI) bind(name string, src v1.PersistentVolumeSource, modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: src, ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}}
	a.pvs[pv.Name] = pv
	a.claims[name] = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: pv.Name, AccessModes: modes}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	return pv
}

func local(path string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}
}

func claim(name, of string, readOnly bool) v1.Volume {
	return vol(name, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: of, ReadOnly: readOnly}})
}

// A pod sees the directory of a local volume. The data outlives the pod. After the set-up of a volume, the agent needs no API server
// for it.
func TestLocalVolume(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f, data := newFixture(t), t.TempDir()
	pv := f.claims.bind("c", local(data))
	pv.Spec.MountOptions = []string{"noatime", "uid=7"}
	p := aPod(claim("v", "c", false))
	setUp(t, f, p)
	at := dir(t, f, p, "v")
	if want := filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~local-volume/pv-c"); at != want {
		t.Errorf("mounted at %s, want %s", at, want)
	}
	var st unix.Statfs_t
	if err := errors.Join(os.WriteFile(filepath.Join(at, "file"), []byte("x"), 0o644), unix.Statfs(at, &st)); err != nil {
		t.Fatal(err)
	}
	if st.Flags&unix.ST_NOATIME == 0 {
		t.Errorf("flags %#x without noatime", st.Flags)
	}
	f.claims.down = errors.New("the API server is away")
	asked := f.claims.asked
	next := volume.New(volume.Config{RootDir: f.root, Host: host(t), Claims: f.claims}) // a new agent
	if err := next.SetUp(t.Context(), volume.Pod{Pod: p}); err != nil || f.claims.asked != asked {
		t.Errorf("the set-up of a volume that is set up: %v, %d requests", err, f.claims.asked-asked)
	}
	if points, _ := host(t).MountPoints(at); len(points) != 1 {
		t.Errorf("mounts %v, want one", points)
	}
	if err := errors.Join(next.TearDown(t.Context(), pod.RefOf(p)), next.TearDown(t.Context(), pod.RefOf(p))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "file")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(f.root, "pods/uid-1")); len(left) != 0 {
		t.Errorf("left on the node: %v", left)
	}
}

// After a reboot the mounts are gone, but the records still exist. The next set-up mounts the volumes again.
func TestLocalVolumeAfterAReboot(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f, data := newFixture(t), t.TempDir()
	f.claims.bind("c", local(data))
	p := aPod(claim("v", "c", true))
	setUp(t, f, p)
	at := dir(t, f, p, "v")
	if err := errors.Join(host(t).Unmount(at), os.WriteFile(filepath.Join(data, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	setUp(t, f, p)
	if _, err := os.Stat(filepath.Join(at, "file")); err != nil {
		t.Errorf("not mounted again: %v", err)
	}
	if err := os.Remove(filepath.Join(at, "file")); !errors.Is(err, unix.EROFS) {
		t.Errorf("the volume is not read-only: %v", err)
	}
	mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil || !mounts[0].Readonly {
		t.Errorf("the mount of a read-only claim: %v, %v", mounts, err)
	}
}

// A set-up that was interrupted after its mount continues from there, whether its record is valid or not.
func TestSetUpGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f, data := newFixture(t), t.TempDir()
	f.claims.bind("c", local(data))
	p := aPod(claim("v", "c", true))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(77))}
	setUp(t, f, p)
	at, record := dir(t, f, p, "v"), filepath.Join(f.root, "pods/uid-1/claims/v")
	for _, text := range []string{"", "{", `{"persistentVolume":"../../x","kind":"local-volume","done":true}`, `{"persistentVolume":"pv-c","kind":"rbd","done":true}`} {
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		asked := f.claims.asked
		setUp(t, f, p)
		if points, _ := host(t).MountPoints(at); len(points) != 1 || f.claims.asked == asked {
			t.Errorf("record %q: mounts %v, want one; %d requests", text, points, f.claims.asked-asked)
		}
		if got := dir(t, f, p, "v"); got != at {
			t.Errorf("record %q: the volume is at %s", text, got)
		}
	}
	if o := ownerOf(t, data); o.GID == 77 {
		t.Error("a read-only volume was given to a group")
	}
}

func TestFSGroupOfALocalVolume(t *testing.T) {
	t.Parallel()
	needRoot(t)
	onMismatch := v1.FSGroupChangeOnRootMismatch
	f, data := newFixture(t), t.TempDir()
	file := filepath.Join(data, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.claims.bind("c", local(data))
	with := func(uid types.UID, group int64, policy *v1.PodFSGroupChangePolicy) *v1.Pod {
		p := aPod(claim("v", "c", false))
		p.UID, p.Name = uid, string(uid)
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: policy}
		return p
	}
	setUp(t, f, with("a", 77, nil))
	if o := ownerOf(t, file); o != (owner{0o660, 0, 77}) {
		t.Errorf("file: %v", o)
	}
	setUp(t, f, with("b", 88, nil))
	if o := ownerOf(t, data); o.GID != 77 {
		t.Errorf("a second pod took the volume from the group of the first: %v", o)
	}
	if err := errors.Join(f.TearDown(t.Context(), pod.Ref{UID: "a"}), f.TearDown(t.Context(), pod.Ref{UID: "b"}), os.Chown(file, 0, 5)); err != nil {
		t.Fatal(err)
	}
	setUp(t, f, with("c", 77, &onMismatch))
	if o := ownerOf(t, file); o.GID != 5 {
		t.Errorf("OnRootMismatch changed a volume whose root is right: %v", o)
	}
	if err := f.TearDown(t.Context(), pod.Ref{UID: "c"}); err != nil {
		t.Fatal(err)
	}
	setUp(t, f, with("d", 88, &onMismatch))
	if o := ownerOf(t, file); o.GID != 88 {
		t.Errorf("OnRootMismatch did not change a volume of another group: %v", o)
	}
}

// Two pods never have a ReadWriteOncePod claim at the same time. If many are set up at once, one of them gets it.
func TestReadWriteOncePod(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.claims.bind("c", local(t.TempDir()), v1.ReadWriteOncePod)
	const pods = 8
	uids := make([]types.UID, pods)
	errs := make([]error, pods)
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			p := aPod(claim("v", "c", false))
			p.UID, p.Name = types.UID(rune('a'+i)), "pod-"+string(rune('a'+i))
			uids[i], errs[i] = p.UID, f.SetUp(t.Context(), volume.Pod{Pod: p})
		})
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		if err == nil && winner >= 0 {
			t.Errorf("pods %s and %s both have the claim", uids[winner], uids[i])
		}
		if err == nil {
			winner = i
		}
	}
	if winner < 0 {
		t.Fatal("no pod got the claim:", errs[0])
	}
	p := aPod(claim("v", "c", false))
	p.UID = "later"
	var woken []types.UID
	next := volume.New(volume.Config{RootDir: f.root, Host: host(t), Claims: f.claims, Notify: func(uid types.UID) { woken = append(woken, uid) }}) // a new agent
	wantError(t, next.SetUp(t.Context(), volume.Pod{Pod: p}), "v", `claim "c": volume uses the ReadWriteOncePod access mode and is already in use by another pod: pod ns/pod-`+string(uids[winner])+" of this node still uses it")
	if err := next.TearDown(t.Context(), pod.Ref{UID: uids[winner]}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(woken, []types.UID{"later"}) {
		t.Errorf("woken: %v, want the pod that waits", woken)
	}
	if err := next.SetUp(t.Context(), volume.Pod{Pod: p}); err != nil {
		t.Errorf("after the end of the other pod: %v", err)
	}
}

func TestHostPathVolumeOfAClaim(t *testing.T) {
	t.Parallel()
	f, data := newFixture(t), t.TempDir()
	f.claims.bind("c", v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(data, "sub"), Type: ptr(v1.HostPathDirectoryOrCreate)}})
	p := aPod(claim("v", "c", true))
	setUp(t, f, p)
	mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil || mounts[0].HostPath != filepath.Join(data, "sub") || !mounts[0].Readonly || mounts[0].SelinuxRelabel {
		t.Errorf("%v, %v", mounts, err)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "sub")); err != nil {
		t.Errorf("the host's directory is gone: %v", err)
	}
}

func TestClaimsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.claims.bind("file", local(file))
	f.claims.bind("away", local(file+".no"))
	f.claims.bind("up", local("/var/../etc"))
	f.claims.bind("nopath", local(""))
	f.claims.bind("csi", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "disks.example.com"}})
	f.claims.bind("quobyte", v1.PersistentVolumeSource{Quobyte: &v1.QuobyteVolumeSource{}})
	f.claims.bind("gone", local(file))
	delete(f.claims.pvs, "pv-gone")
	f.claims.bind("evil", local(file))
	f.claims.claims["evil"].Spec.VolumeName = "../../../etc"
	for name, want := range map[string]string{
		"none": `persistentvolumeclaim "none" not found: create it in namespace "ns"`,
		"file": "is neither a directory nor a block device", "away": "does not exist on this node",
		"up": "must not be empty or contain '..'", "nopath": "must not be empty", "csi": "volumeHandle has 0 bytes", "quobyte": "of the kind quobyte",
		"gone": `persistentvolume "pv-gone" of persistentvolumeclaim "gone" not found`, "evil": "cannot be a directory name",
	} {
		p := aPod(claim("v", name, false))
		p.UID = types.UID(name)
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", want)
		if _, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]}); err == nil {
			if name != "file" && name != "away" { // the set-ups of "file" and "away" have written a record, so Mounts may succeed
				t.Errorf("%s: a container can start without the volume", name)
			}
		}
	}
	alone := volume.New(volume.Config{RootDir: t.TempDir(), Host: host(t), Log: slog.New(slog.DiscardHandler)})
	wantError(t, alone.SetUp(t.Context(), volume.Pod{Pod: aPod(claim("v", "c", false))}), "v", "no API server")
}

// A volume that hangs delays no pod with another volume.
func TestAHangingVolumeHurtsOnePod(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.claims.bind("dead", local("/dead"))
	f.claims.bind("c", local(t.TempDir()))
	h := &hangingHost{release: make(chan struct{}), hangs: make(chan struct{})}
	v := volume.New(volume.Config{RootDir: f.root, Host: h, Claims: f.claims})
	hurt := aPod(claim("v", "dead", false))
	hurt.UID = "hurt"
	done := make(chan error)
	go func() { done <- v.SetUp(context.WithoutCancel(t.Context()), volume.Pod{Pod: hurt}) }()
	<-h.hangs
	p := aPod(claim("v", "c", false))
	if err := errors.Join(v.SetUp(t.Context(), volume.Pod{Pod: p}), v.TearDown(t.Context(), pod.RefOf(p))); err != nil {
		t.Errorf("a pod beside it: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.UID, p.Spec.Volumes[0] = "same", claim("v", "dead", false)
	if err := v.SetUp(ctx, volume.Pod{Pod: p}); err == nil || !strings.Contains(err.Error(), "wait for other work") {
		t.Errorf("a pod of the same volume that is told to end: %v", err)
	}
	close(h.release)
	if err := <-done; err == nil {
		t.Error("no error of the volume that hung")
	}
}

// hangingHost is a host on which opening the path /dead hangs.
type hangingHost struct {
	hostfs.Host
	hangs, release chan struct{}
}

func (h *hangingHost) OpenDir(path string) (*os.File, error) {
	if path != "/dead" {
		return h.Host.OpenDir(path)
	}
	close(h.hangs)
	<-h.release
	return nil, unix.EIO
}
