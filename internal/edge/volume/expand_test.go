package volume_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// PatchClaimStatus changes a claim as the API server does.
func (a *claimAPI) PatchClaimStatus(_ context.Context, _, name string, body []byte) (*v1.PersistentVolumeClaim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return nil, a.down
	}
	var patch struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	if v := patch.Metadata.ResourceVersion; v != "" && v != a.claims[name].ResourceVersion {
		return nil, fmt.Errorf("conflict: version %s, not %s", a.claims[name].ResourceVersion, v)
	}
	old, _ := json.Marshal(a.claims[name])
	text, err := strategicpatch.StrategicMergePatch(old, body, v1.PersistentVolumeClaim{})
	after := &v1.PersistentVolumeClaim{}
	if err == nil {
		err = json.Unmarshal(text, after)
	}
	after.ResourceVersion = fmt.Sprint(len(a.patches) + 2)
	a.patches = append(a.patches, string(body))
	a.claims[name] = after
	if a.looked != nil {
		a.looked()
	}
	return after, err
}

// grown makes the claim and its persistent volume say that the volume has grown from 1Gi to 2Gi and the node has to expand it. If
// states is false, the claim's status has no allocatedResourceStatuses, as with a controller that does not write them.
func (a *claimAPI) grown(name string, states bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	two := v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	pv := a.pvs["pv-"+name].DeepCopy()
	pv.Spec.Capacity = two
	a.pvs["pv-"+name] = pv
	c := a.claims[name].DeepCopy()
	c.ResourceVersion = "1"
	c.Spec.Resources.Requests = two
	c.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	if states {
		c.Status.AllocatedResources = two
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	}
	a.claims[name] = c
}

// said describes the size and the state of a claim's status.
func (a *claimAPI) said(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.claims[name].Status
	text := s.Capacity.Storage().String() + " " + string(s.AllocatedResourceStatuses[v1.ResourceStorage])
	for _, c := range s.Conditions {
		text += " " + string(c.Type)
	}
	return text
}

// A volume that has grown before it is mounted is expanded when it is staged, or after it is published if the driver stages nothing.
func TestExpansionOfAVolumeThatIsBeingMounted(t *testing.T) {
	t.Parallel()
	for _, stage := range []bool{true, false} {
		f := newCSI(t, simcsi.Config{Stage: stage, Expand: true})
		pv := f.disk("d", v1.ReadWriteOnce)
		pv.Spec.CSI.NodeExpandSecretRef = &v1.SecretReference{Namespace: "vault", Name: "expand"}
		f.claims.secrets["vault/expand"] = &v1.Secret{Data: map[string][]byte{"key": []byte("e")}}
		f.claims.grown("d", true)
		p := podOf("a", claim("v", "d", false))
		setUp(t, f.fixture, p)
		r := f.driver.LastExpand()
		if r == nil {
			t.Fatalf("stage %v: the volume was not expanded: %v", stage, f.driver.Calls())
		}
		want := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/mount")
		if stage {
			want = r.StagingTargetPath
		}
		if r.VolumePath != want || r.CapacityRange.RequiredBytes != 2<<30 || r.Secrets["key"] != "e" || r.VolumeCapability.GetMount().GetFsType() != "ext4" {
			t.Errorf("stage %v: the request: %v", stage, r)
		}
		if got := f.claims.said("d"); got != "2Gi " {
			t.Errorf("stage %v: the claim's status: %s", stage, got)
		}
		if !slices.Contains(f.events(), "PersistentVolumeClaim d FileSystemResizeSuccessful") || !slices.Contains(f.events(), "Pod pod-a FileSystemResizeSuccessful") {
			t.Errorf("stage %v: events: %q", stage, f.events())
		}
		setUp(t, f.fixture, podOf("b", claim("v", "d", false)))
		if n := f.driver.Count("NodeExpandVolume"); n != 1 {
			t.Errorf("stage %v: expanded %d times", stage, n)
		}
	}
}

func TestExpansionThatFailsDuringAMount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		code         codes.Code
		err, claim   string // the error of the first try, and the claim's status after it
		afterSuccess string
	}{
		{"a final error", codes.Internal, "no room", "1Gi NodeResizeInProgress NodeResizeError FileSystemResizePending", "2Gi "},
		{"the driver may still be at work", codes.Aborted, "no room", "1Gi NodeResizeInProgress FileSystemResizePending", "2Gi "},
		{"infeasible", codes.OutOfRange, "", "1Gi NodeResizeInfeasible NodeResizeError FileSystemResizePending", "1Gi NodeResizeInfeasible NodeResizeError FileSystemResizePending"},
		{"in use", codes.FailedPrecondition, "", "1Gi NodeResizeInProgress NodeResizeError FileSystemResizePending", "1Gi NodeResizeInProgress NodeResizeError FileSystemResizePending"},
	} {
		f := newCSI(t, simcsi.Config{Stage: true, Expand: true})
		f.disk("d", v1.ReadWriteOnce)
		f.claims.grown("d", true)
		f.driver.SetFault("NodeExpandVolume", &simcsi.Fault{Err: status.Error(c.code, "no room")})
		p := podOf("a", claim("v", "d", false))
		err := f.SetUp(t.Context(), volume.Pod{Pod: p})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), "NodeExpandVolume: no room") {
			t.Errorf("%s: error %v", c.name, err)
		}
		if got := f.claims.said("d"); got != c.claim {
			t.Errorf("%s: the claim's status: %s, want %s", c.name, got, c.claim)
		}
		if !slices.Contains(f.events(), "Pod pod-a VolumeResizeFailed") {
			t.Errorf("%s: events: %q", c.name, f.events())
		}
		f.driver.SetFault("NodeExpandVolume", nil)
		setUp(t, f.fixture, p)
		if got := f.claims.said("d"); got != c.afterSuccess {
			t.Errorf("%s: the claim's status after another try: %s, want %s", c.name, got, c.afterSuccess)
		}
	}
}

// A volume that a pod may only read is not expanded.
func TestNoExpansionOfAReadOnlyVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, Expand: true})
	f.disk("d", v1.ReadWriteOnce)
	f.claims.grown("d", true)
	setUp(t, f.fixture, podOf("a", claim("v", "d", true)))
	if n := f.driver.Count("NodeExpandVolume"); n != 0 || !slices.Contains(f.events(), "Pod pod-a FileSystemResizeFailed") {
		t.Errorf("expanded %d times, events %q", n, f.events())
	}
}

// A mounted volume is expanded within a minute after it has grown. The agent may have been restarted in between. While nothing has grown,
// each check sends one request for each volume to the API server, and calls no driver.
func TestExpansionOfAMountedVolume(t *testing.T) {
	t.Parallel()
	for _, states := range []bool{true, false} {
		f := newCSI(t, simcsi.Config{Stage: true, Expand: true})
		f.disk("d", v1.ReadWriteOnce)
		f.claims.grown("d", states)
		f.claims.set(func() { // the volume has not grown yet
			f.claims.pvs["pv-d"].Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
			f.claims.claims["d"].Status.AllocatedResources, f.claims.claims["d"].Status.AllocatedResourceStatuses = nil, nil
		})
		p := podOf("a", claim("v", "d", false))
		setUp(t, f.fixture, p)
		f.Volumes = f.restart()
		setUp(t, f.fixture, p)
		asked, calls := f.claims.asked, len(f.driver.Calls())
		f.visit(t)
		if f.claims.asked != asked+1 || len(f.driver.Calls()) != calls {
			t.Errorf("%d requests, calls %q while nothing has grown", f.claims.asked-asked, f.driver.Calls()[calls:])
		}
		f.claims.grown("d", states)
		f.driver.SetFault("NodeExpandVolume", &simcsi.Fault{Err: status.Error(codes.Internal, "no room")})
		f.visit(t)
		if got := f.claims.said("d"); !strings.HasPrefix(got, "1Gi") || !strings.Contains(got, "NodeResizeError") {
			t.Errorf("states %v: after a failure the claim's status is %s", states, got)
		}
		f.driver.SetFault("NodeExpandVolume", nil)
		f.visit(t)
		r := f.driver.LastExpand()
		if r == nil || r.VolumePath != filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/mount") || !strings.HasSuffix(r.StagingTargetPath, "/globalmount") {
			t.Fatalf("states %v: the request: %v", states, r)
		}
		if got := f.claims.said("d"); got != "2Gi " {
			t.Errorf("states %v: the claim's status: %s", states, got)
		}
		n := f.driver.Count("NodeExpandVolume")
		f.visit(t)
		if f.driver.Count("NodeExpandVolume") != n {
			t.Errorf("states %v: expanded again", states)
		}
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Fatal(err)
		}
		if left := f.Visits(); left != 0 {
			t.Errorf("states %v: %d volumes are still visited after the end of their pod", states, left)
		}
	}
}

// When a driver registers, the node looks at once whether volumes of this driver have grown, and expands them: it does not wait for the next visit.
func TestDriverThatIsBackExpandsWhatHasGrown(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, Expand: true})
	f.disk("d", v1.ReadWriteOnce)
	setUp(t, f.fixture, podOf("a", claim("v", "d", false)))
	ctx, cancel := context.WithCancel(t.Context())
	join := f.Begin(ctx)
	back := f.away()
	f.claims.grown("d", true)
	f.DriverRegistered("other.example.com")
	if n := f.driver.Count("NodeExpandVolume"); n != 0 {
		t.Errorf("expanded %d times while the driver is away", n)
	}
	back()
	f.await(t, func() bool { return f.claims.said("d") == "2Gi " })
	cancel()
	join()
	if n := f.driver.Count("NodeExpandVolume"); n != 1 || f.Visits() != 1 {
		t.Errorf("expanded %d times, %d volumes are visited", n, f.Visits())
	}
}

// If a driver registers while a volume is being visited, the visit may have missed it: the next one follows at once.
func TestDriverThatIsBackDuringAVisit(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, Expand: true})
	f.disk("d", v1.ReadWriteOnce)
	setUp(t, f.fixture, podOf("a", claim("v", "d", false)))
	f.claims.grown("d", true)
	release := make(chan struct{})
	f.driver.SetFault("NodeExpandVolume", &simcsi.Fault{Hang: release, Err: status.Error(codes.Unavailable, "going away")})
	ctx, cancel := context.WithCancel(t.Context())
	join := f.Begin(ctx)
	f.DriverRegistered(driverName)
	f.await(t, func() bool { return f.driver.Count("NodeExpandVolume") == 1 })
	f.driver.SetFault("NodeExpandVolume", nil)
	f.DriverRegistered(driverName)
	close(release)
	f.await(t, func() bool { return f.claims.said("d") == "2Gi " })
	cancel()
	join()
}

// A newer driver may be able to expand volumes that the older one could not: when it registers, the node expands those that are mounted.
func TestDriverThatIsBackCanExpand(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	setUp(t, f.fixture, podOf("a", claim("v", "d", false)))
	f.visit(t)
	if n := f.Visits(); n != 0 {
		t.Errorf("%d volumes are visited whose driver cannot expand", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	join := f.Begin(ctx)
	f.claims.grown("d", true)
	f.registeredDriver().Close()
	f.driver.SetExpand(true)
	f.register(t, f.socket)
	f.DriverRegistered(driverName)
	within, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	for f.claims.said("d") != "2Gi " {
		select {
		case <-f.changed:
		case <-within.Done():
			t.Fatalf("not expanded: the driver was asked %d times", f.driver.Count("NodeExpandVolume"))
		}
	}
	cancel()
	join()
	if n := f.Visits(); n != 1 {
		t.Errorf("%d volumes are visited", n)
	}
}

// An agent that starts again may set up its pods before their driver has registered. From then on it asks the driver for the condition of the volumes.
func TestConditionOfVolumesAfterARestart(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 100}}, Condition: &csi.VolumeCondition{Abnormal: true, Message: "broken"}})
	f.health = true
	p := podOf("a", vol("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}))
	setUp(t, f.fixture, p)
	back := f.away()
	f.Volumes = f.restart()
	setUp(t, f.fixture, p)
	if n := f.Visits(); n != 0 {
		t.Errorf("%d volumes are visited while the driver is away", n)
	}
	back()
	if n := f.Visits(); n != 1 {
		t.Fatalf("%d volumes are visited to ask for their condition, want 1", n)
	}
	f.visit(t)
	f.await(t, func() bool { return f.driver.Count("NodeGetVolumeStats") == 1 })
}

// If a driver cannot expand a volume that is in use, the node asks it only once for a mounted volume.
func TestDriverThatExpandsNoVolumeInUse(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, Expand: true})
	f.disk("d", v1.ReadWriteOnce)
	setUp(t, f.fixture, podOf("a", claim("v", "d", false)))
	f.claims.grown("d", true)
	f.driver.SetFault("NodeExpandVolume", &simcsi.Fault{Err: status.Error(codes.FailedPrecondition, "in use")})
	f.visit(t)
	f.visit(t)
	if n := f.driver.Count("NodeExpandVolume"); n != 1 || f.Visits() != 0 {
		t.Errorf("asked %d times, %d volumes are visited", n, f.Visits())
	}
}

// The agent does no periodic work (visits) on a mounted volume if its driver neither expands volumes nor requires republishing.
func TestDriverWithoutExpansion(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	setUp(t, f.fixture, podOf("a", claim("v", "d", false)))
	f.visit(t)
	if f.Visits() != 0 {
		t.Errorf("%d volumes are visited", f.Visits())
	}
}

// If the CSIDriver object sets requiresRepublish, each visit (once a minute) makes the node publish the volume again, with new tokens. If
// the driver refuses, the node records an event, and the volume stays mounted.
func TestRepublish(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.claims.drivers[driverName].Spec.RequiresRepublish = ptr(true)
	p := podOf("a", vol("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}))
	setUp(t, f.fixture, p)
	f.visit(t)
	if !slices.Equal(f.woken, []types.UID{"a"}) {
		t.Fatalf("woken: %v", f.woken)
	}
	setUp(t, f.fixture, p)
	if n := f.driver.Count("NodePublishVolume"); n != 2 {
		t.Errorf("published %d times", n)
	}
	f.driver.SetFault("NodePublishVolume", &simcsi.Fault{Err: status.Error(codes.Internal, "no new secret")})
	f.visit(t)
	setUp(t, f.fixture, p)
	back := f.away()
	setUp(t, f.fixture, p)
	back()
	if n := f.driver.Count("NodePublishVolume"); n != 3 || !slices.Contains(f.events(), "Pod pod-a FailedMount") {
		t.Errorf("published %d times, events %q", n, f.events())
	}
	f.Volumes = f.restart()
	setUp(t, f.fixture, p)
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if f.Visits() != 0 || f.driver.Count("NodeUnpublishVolume") != 1 {
		t.Errorf("%d volumes are visited, calls %q", f.Visits(), f.driver.Calls())
	}
}

// Somebody switches requiresRepublish on in the CSIDriver object, as when a driver begins to renew secrets: the volumes that are mounted already are published
// again, too, also after a restart of the agent, and no more when it is switched off.
func TestRepublishThatIsSwitchedOn(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	p := podOf("a", vol("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}))
	setUp(t, f.fixture, p)
	turn := func(when string, on bool, woken, published int) {
		t.Helper()
		f.claims.drivers[driverName].Spec.RequiresRepublish = &on
		f.woken = nil
		f.RepublishRequired(driverName, on)
		f.visit(t)
		setUp(t, f.fixture, p)
		if n := f.driver.Count("NodePublishVolume"); n != published || len(f.woken) != woken {
			t.Errorf("%s: published %d times, and the pod was woken %d times, want %d and %d", when, n, len(f.woken), published, woken)
		}
	}
	turn("as before", false, 0, 1)
	turn("switched on", true, 1, 2)
	turn("still on", true, 1, 3)
	f.Volumes = f.restart()
	setUp(t, f.fixture, p)
	turn("after a restart", true, 1, 5)
	turn("switched off", false, 0, 5)
	if f.visit(t); f.Visits() != 0 {
		t.Errorf("%d volumes are visited", f.Visits())
	}
}

// The agent visits each mounted volume, to expand it or publish it again, a minute after it was added, and then every minute. One timer
// serves all volumes, and without volumes no timer runs.
func TestVisitsAreOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var woken []string
		v := volume.New(volume.Config{RootDir: t.TempDir(), Notify: func(uid types.UID) { woken = append(woken, string(uid)+" "+time.Since(began).String()) }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- rounds.Until(ctx, v.Begin) }()
		time.Sleep(time.Hour)
		began = time.Now()
		v.VisitForTest("a")
		time.Sleep(10 * time.Second)
		v.VisitForTest("b")
		time.Sleep(119 * time.Second)
		if want := []string{"a 1m0s", "b 1m10s", "a 2m0s"}; !slices.Equal(woken, want) {
			t.Errorf("%q, want %q", woken, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
