package fleet_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// disks is the name of a simulated driver.
const disks = "disks.example.com"

func diskGroup(count int) []fleet.Group {
	return []fleet.Group{{Count: count, Zones: []string{"a", "b"}, CSIDrivers: []fleet.CSIDriver{{
		Name: disks, MaxVolumes: 25, Topology: map[string]string{"topology.disks.example.com/zone": "{zone}"},
	}}}}
}

// disk creates a claim that is bound to a volume of the driver, with a file system. Its name is also the volume's handle.
func (b *bench) disk(t *testing.T, name string) {
	t.Helper()
	b.diskWith(t, name, v1.PersistentVolumeFilesystem)
}

func (b *bench) diskWith(t *testing.T, name string, mode v1.PersistentVolumeMode) {
	t.Helper()
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: "pv-" + name, VolumeMode: &mode, Resources: v1.VolumeResourceRequirements{Requests: size}},
	}
	claim, err := b.admin.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: size, AccessModes: modes}
	if _, err := b.admin.CoreV1().PersistentVolumeClaims("default").UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, VolumeMode: &mode, ClaimRef: &v1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: disks, VolumeHandle: name, VolumeAttributes: map[string]string{"size": "1073741824", "used": "1048576", "usedPerSecond": "1024"},
			}},
		},
	}
	if _, err := b.admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// attach does what the attach-detach controller and an attacher do.
func (b *bench) attach(t *testing.T, node, handle string) {
	t.Helper()
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csispec.Attachment(handle, disks, node)}, Spec: storagev1.VolumeAttachmentSpec{Attacher: disks, NodeName: node},
	}
	a, err := b.admin.StorageV1().VolumeAttachments().Create(t.Context(), a, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.Status.Attached = true
	if _, err := b.admin.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	listed := fmt.Sprintf(`{"status":{"volumesAttached":[{"name":%q,"devicePath":""}]}}`, csispec.UniqueName(disks, handle))
	if _, err := b.admin.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(listed), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// grow does what a resizer does for a claim that asks for more.
func (b *bench) grow(t *testing.T, name, size string) {
	t.Helper()
	volume := fmt.Appendf(nil, `{"spec":{"capacity":{"storage":%q}}}`, size)
	if _, err := b.admin.CoreV1().PersistentVolumes().Patch(t.Context(), "pv-"+name, types.MergePatchType, volume, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claims := b.admin.CoreV1().PersistentVolumeClaims("default")
	asked := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	if _, err := claims.Patch(t.Context(), name, types.MergePatchType, asked, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	status := fmt.Appendf(nil, `{"status":{"allocatedResources":{"storage":%q},"allocatedResourceStatuses":{"storage":"NodeResizePending"}}}`, size)
	if _, err := claims.Patch(t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// diskPod creates a pod with a claim.
func (b *bench) diskPod(t *testing.T, name, node, claim string) {
	t.Helper()
	_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) node(t *testing.T, name string) *v1.Node {
	t.Helper()
	n, err := b.admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *bench) inUse(t *testing.T, node, handle string) bool {
	t.Helper()
	return slices.Contains(b.node(t, node).Status.VolumesInUse, csispec.UniqueName(disks, handle))
}

func running(pods int) func(fleet.Status) bool {
	return func(s fleet.Status) bool { return s.Pods.Running == pods && s.Pods.Ready == pods }
}

// Each node of a group with CSI drivers has them in its CSINode, with its topology as labels. A pod with a volume of a driver waits until the
// volume is attached, runs, and gives the volume back when it ends. An agent and a machine that start again have the volumes of their pods.
func TestCSIDriversOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Keep: true, Groups: diskGroup(2)})
		b.until(t, "both join", settled)
		time.Sleep(time.Second)
		for i, zone := range []string{"a", "b"} {
			name := fmt.Sprintf("f-node-%d", i+1)
			n, err := b.admin.StorageV1().CSINodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || len(n.Spec.Drivers) != 1 {
				t.Fatalf("CSINode %s: %+v, %v", name, n, err)
			}
			d := n.Spec.Drivers[0]
			if got := fmt.Sprint(d.Name, d.NodeID, *d.Allocatable.Count, d.TopologyKeys); got != fmt.Sprint(disks, name, 25, []string{"topology.disks.example.com/zone"}) {
				t.Errorf("CSINode %s: %s", name, got)
			}
			if got := b.node(t, name).Labels["topology.disks.example.com/zone"]; got != zone {
				t.Errorf("node %s has the zone %q, want %q", name, got, zone)
			}
		}
		b.disk(t, "d")
		b.diskPod(t, "db", "f-node-1", "d")
		time.Sleep(20 * time.Second)
		if s := b.fleet.Status(); s.Pods.Running != 0 || !b.inUse(t, "f-node-1", "d") {
			t.Errorf("before the volume is attached: %+v, in use %v", s.Pods, b.inUse(t, "f-node-1", "d"))
		}
		b.attach(t, "f-node-1", "d")
		b.until(t, "the pod runs", running(1))
		for _, kind := range []fleet.FaultKind{fleet.FaultAgent, fleet.FaultCrash} {
			if _, err := b.fleet.Inject(fleet.Selector{Names: []string{"f-node-1"}}, fleet.Fault{Kind: kind, For: 20 * time.Second}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if s := b.fleet.Status(); !running(1)(s) || !b.inUse(t, "f-node-1", "d") {
				t.Errorf("after the fault %s: %+v, in use %v", kind, s.Pods, b.inUse(t, "f-node-1", "d"))
			}
		}
		if err := b.admin.CoreV1().Pods("default").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.until(t, "the pod is gone", func(s fleet.Status) bool { return s.Pods.Pending+s.Pods.Running == 0 })
		time.Sleep(20 * time.Second)
		if b.inUse(t, "f-node-1", "d") {
			t.Error("the volume is in use after the end of the pod")
		}
	})
}

// A volume of a driver without attachment is mounted at once, and grows while the pod runs if its claim grows.
func TestVolumeGrowsOnANodeOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Keep: true, Groups: diskGroup(1)})
		b.until(t, "the node joins", settled)
		attach := false
		if _, err := b.admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: disks}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.disk(t, "d")
		b.diskPod(t, "db", "f-node-1", "d")
		b.until(t, "the pod runs", running(1))
		b.grow(t, "d", "2Gi")
		claims := b.admin.CoreV1().PersistentVolumeClaims("default")
		time.Sleep(2 * time.Minute)
		c, err := claims.Get(t.Context(), "d", metav1.GetOptions{})
		if err != nil || c.Status.Capacity.Storage().String() != "2Gi" || len(c.Status.AllocatedResourceStatuses) > 0 {
			t.Errorf("%+v, %v", c.Status, err)
		}
	})
}

// A pod with a block volume waits until the volume is attached, runs, also after the agent and the machine have started again, and gives the volume back when it
// ends. The volume grows. A second pod of the node may use it as a device, too, and one that wants to mount it does not start.
func TestBlockVolumeOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Keep: true, Groups: diskGroup(1)})
		b.until(t, "the node joins", settled)
		b.diskWith(t, "d", v1.PersistentVolumeBlock)
		devicePod := func(name string) {
			_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1.PodSpec{
					NodeName: "f-node-1", Containers: []v1.Container{{Name: "c", Image: "i", VolumeDevices: []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}}},
					Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		devicePod("a")
		b.diskPod(t, "mounts", "f-node-1", "d")
		time.Sleep(20 * time.Second)
		if s := b.fleet.Status(); s.Pods.Running != 0 || !b.inUse(t, "f-node-1", "d") {
			t.Errorf("before the volume is attached: %+v, in use %v", s.Pods, b.inUse(t, "f-node-1", "d"))
		}
		b.attach(t, "f-node-1", "d")
		devicePod("b")
		two := func(s fleet.Status) bool { return s.Pods.Running == 2 && s.Pods.Ready == 2 && s.Pods.Pending == 1 }
		b.until(t, "the pods with the device run, and the other one does not", two)
		b.grow(t, "d", "2Gi")
		for _, kind := range []fleet.FaultKind{fleet.FaultAgent, fleet.FaultCrash} {
			if _, err := b.fleet.Inject(fleet.Selector{Names: []string{"f-node-1"}}, fleet.Fault{Kind: kind, For: 20 * time.Second}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if s := b.fleet.Status(); !two(s) || !b.inUse(t, "f-node-1", "d") {
				t.Errorf("after the fault %s: %+v, in use %v", kind, s.Pods, b.inUse(t, "f-node-1", "d"))
			}
		}
		if c, err := b.admin.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "d", metav1.GetOptions{}); err != nil || c.Status.Capacity.Storage().String() != "2Gi" {
			t.Errorf("%+v, %v", c.Status, err)
		}
		for _, name := range []string{"a", "b", "mounts"} {
			if err := b.admin.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		b.until(t, "the pods are gone", func(s fleet.Status) bool { return s.Pods.Pending+s.Pods.Running == 0 })
		time.Sleep(20 * time.Second)
		if b.inUse(t, "f-node-1", "d") {
			t.Error("the volume is in use after the end of the pods")
		}
	})
}

// Drivers and mounted volumes cost a node at rest no goroutine.
func TestDriversAtRest(t *testing.T) { //nolint:paralleltest // it counts goroutines
	synctest.Test(t, func(t *testing.T) {
		const nodes = 20
		count := func(groups []fleet.Group) int {
			before := runtime.NumGoroutine()
			b := start(t, fleet.Config{Name: "f", Groups: groups})
			b.until(t, "all join", settled)
			for i := range nodes {
				b.disk(t, fmt.Sprint("d", i))
				if len(groups[0].CSIDrivers) > 0 {
					b.diskPod(t, fmt.Sprint("p", i), fmt.Sprintf("f-node-%d", i+1), fmt.Sprint("d", i))
					b.attach(t, fmt.Sprintf("f-node-%d", i+1), fmt.Sprint("d", i))
				} else {
					b.createPod(t, fmt.Sprint("p", i), fmt.Sprintf("f-node-%d", i+1))
				}
			}
			b.until(t, "all run", running(nodes))
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			out := runtime.NumGoroutine() - before
			b.end(t)
			return out
		}
		with, without := count(diskGroup(nodes)), count([]fleet.Group{{Count: nodes}})
		const shared = 3 // goroutines that are not those of a node
		if with > without+shared {
			t.Errorf("%d goroutines with drivers, %d without", with, without)
		}
	})
}

// The rights of csi-drivers.yaml are enough for a fleet whose nodes have CSI drivers, and the fleet uses each of them.
func TestRightsForCSIDrivers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShared(t, 2)
		c := &checker{rights: rights(t, manifests(t, "rbac.yaml", "csi-drivers.yaml")), refused: map[right]bool{}}
		if _, err := b.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "wherry-fleet"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p := b.run("a", func(cfg *fleet.Config) {
			cfg.Groups = diskGroup(2)
			cfg.Groups[0].CSIDrivers = append(cfg.Groups[0].CSIDrivers, fleet.CSIDriver{Name: "other.example.com"})
			cfg.Identity, cfg.Shard.Namespace = fleet.Shared, "wherry-fleet"
			cfg.Client.Transport = checked{c, cfg.Client.Transport}
		})
		b.settle(p)
		cluster := &bench{kube: b.kube, admin: b.admin}
		cluster.disk(t, "d")
		cluster.diskPod(t, "db", "f-node-1", "d")
		time.Sleep(time.Second)
		cluster.attach(t, "f-node-1", "d")
		time.Sleep(time.Minute)
		cluster.grow(t, "d", "2Gi")
		time.Sleep(2 * time.Minute)
		if s := p.Status(); s.Pods.Running != 1 {
			t.Errorf("pods: %+v", s.Pods)
		}
		if err := b.admin.CoreV1().Pods("default").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.stop()
		for r := range c.refused {
			t.Errorf("the manifests do not allow %+v", r)
		}
		for r := range rights(t, manifests(t, "csi-drivers.yaml")) {
			if !c.rights[r] {
				t.Errorf("nothing uses %+v", r)
			}
		}
	})
}

// A fleet with Config.Storage creates a storage class and a CSIDriver for each driver. It keeps those that exist, and at its end removes only
// its own.
func TestStorageClassesOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		groups := diskGroup(1)
		groups[0].CSIDrivers = append(groups[0].CSIDrivers, fleet.CSIDriver{Name: "other.example.com"})
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
		b.until(t, "the node joins", settled)
		b.end(t)
		if _, err := b.admin.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "other.example.com"}, Provisioner: "somebody.example.com",
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.run(t, fleet.Config{Name: "f", Groups: groups, Storage: true})
		b.until(t, "the node joins", settled)
		names := func() (out []string) {
			classes, err := b.admin.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range classes.Items {
				out = append(out, c.Name+" of "+c.Provisioner)
			}
			drivers, err := b.admin.StorageV1().CSIDrivers().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range drivers.Items {
				out = append(out, "driver "+d.Name)
			}
			slices.Sort(out)
			return out
		}
		want := []string{"disks.example.com of disks.example.com", "driver disks.example.com", "driver other.example.com", "other.example.com of somebody.example.com"}
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		b.end(t)
		if got := names(); !slices.Equal(got, want[3:]) {
			t.Errorf("at the end: %q, want %q", got, want[3:])
		}
		time.Sleep(time.Minute)
		b.run(t, fleet.Config{Name: "f", Groups: groups, Storage: true, Keep: true})
		b.until(t, "the node joins", settled)
		b.end(t)
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("with Keep: %q, want %q", got, want)
		}
		if _, err := fleet.Clean(t.Context(), b.kube.RESTConfig("test"), "f"); err != nil {
			t.Error(err)
		}
		if got := names(); !slices.Equal(got, want[3:]) {
			t.Errorf("after Clean: %q, want %q", got, want[3:])
		}
	})
}
