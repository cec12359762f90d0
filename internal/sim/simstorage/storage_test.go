package simstorage_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/sim/simkube"
	"github.com/wherry-node/wherry/internal/sim/simstorage"
)

const driver = "disks.example.com"

// cluster is an API server in memory in which a Storage works. The test does what the controllers of Kubernetes do.
type cluster struct {
	*testing.T
	*kubernetes.Clientset
}

// within runs f in virtual time, in a cluster with two nodes of different zones and two storage classes.
func within(t *testing.T, f func(c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		kube := simkube.New(simkube.Config{Latency: time.Millisecond})
		admin, err := kubernetes.NewForConfig(kube.RESTConfig("test"))
		if err != nil {
			t.Fatal(err)
		}
		api, err := kubeclient.New(kube.RESTConfig("storage"))
		if err != nil {
			t.Fatal(err)
		}
		c := &cluster{t, admin}
		for i, zone := range []string{"a", "b"} {
			name := fmt.Sprint("n", i+1)
			_, err := admin.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"x/zone": zone}}}, metav1.CreateOptions{})
			c.no(err)
			_, err = admin.StorageV1().CSINodes().Create(t.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: name, TopologyKeys: []string{"x/zone"}}},
			}}, metav1.CreateOptions{})
			c.no(err)
		}
		for name, mode := range map[string]storagev1.VolumeBindingMode{"waits": storagev1.VolumeBindingWaitForFirstConsumer, "at-once": storagev1.VolumeBindingImmediate} {
			_, err := admin.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &mode,
			}, metav1.CreateOptions{})
			c.no(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			simstorage.New(simstorage.Config{API: api, Drivers: []string{driver}, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
		}()
		f(c)
		cancel()
		<-ended
	})
}

func (c *cluster) no(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// claim creates a claim of a class, as it looks when a provisioner has to make its volume.
func (c *cluster) claim(name, class, node string) *v1.PersistentVolumeClaim {
	c.Helper()
	annotations := map[string]string{"volume.kubernetes.io/storage-provisioner": driver}
	if node != "" {
		annotations["volume.kubernetes.io/selected-node"] = node
	}
	claim, err := c.CoreV1().PersistentVolumeClaims("default").Create(c.Context(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	c.no(err)
	return claim
}

// volume returns the volume of a claim, or nil if there is none a while later.
func (c *cluster) volume(claim *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	c.Helper()
	time.Sleep(15 * time.Second)
	list, err := c.CoreV1().PersistentVolumes().List(c.Context(), metav1.ListOptions{})
	c.no(err)
	for i := range list.Items {
		if list.Items[i].Spec.ClaimRef.UID == claim.UID {
			return &list.Items[i]
		}
	}
	return nil
}

// zone returns the zone to which a volume is bound.
func zone(pv *v1.PersistentVolume) string {
	return pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
}

// A claim gets one volume: of its size and class, at the place of the node that was selected. A claim that waits for a pod, or that is of
// another provisioner, gets none.
func TestVolumesAreMade(t *testing.T) {
	t.Parallel()
	within(t, func(c *cluster) {
		for node, want := range map[string]string{"n1": "a", "n2": "b"} {
			claim := c.claim("of-"+node, "waits", node)
			pv := c.volume(claim)
			if pv == nil || zone(pv) != want || pv.Spec.CSI.Driver != driver || pv.Spec.CSI.VolumeAttributes["size"] != "1073741824" || pv.Spec.StorageClassName != "waits" ||
				pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
				c.Errorf("claim %s: %+v", claim.Name, pv)
			}
		}
		zones := map[string]bool{}
		for i := range 8 {
			if pv := c.volume(c.claim(fmt.Sprint("c", i), "at-once", "")); pv != nil {
				zones[zone(pv)] = true
			}
		}
		if len(zones) != 2 {
			c.Errorf("volumes of claims that are bound at once are in the zones %v", zones)
		}
		waits := c.claim("waits", "waits", "")
		if pv := c.volume(waits); pv != nil {
			c.Errorf("a claim that waits for a pod has the volume %s", pv.Name)
		}
		other := waits.DeepCopy()
		other.Name, other.ResourceVersion, other.UID = "another", "", ""
		other.Annotations["volume.kubernetes.io/selected-node"] = "n1"
		other.Annotations["volume.kubernetes.io/storage-provisioner"] = "somebody.example.com"
		other, err := c.CoreV1().PersistentVolumeClaims("default").Create(c.Context(), other, metav1.CreateOptions{})
		c.no(err)
		if pv := c.volume(other); pv != nil {
			c.Errorf("a claim of another provisioner has the volume %s", pv.Name)
		}
	})
}

// A class says how much of its volumes is used, and by how much that grows. With a parameter that is no amount no volume is made, and an event says so.
func TestUseOfVolumes(t *testing.T) {
	t.Parallel()
	within(t, func(c *cluster) {
		for name, parameters := range map[string]map[string]string{
			"fills": {"used": "256Mi", "usedPerSecond": "1Ki", "fsType": "ext4"}, "wrong": {"used": "much"}, "negative": {"usedPerSecond": "-1"},
		} {
			_, err := c.StorageV1().StorageClasses().Create(c.Context(), &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, Parameters: parameters,
			}, metav1.CreateOptions{})
			c.no(err)
		}
		made := fmt.Sprint(time.Now().Unix())
		pv := c.volume(c.claim("a", "fills", ""))
		if got, want := fmt.Sprint(pv.Spec.CSI.VolumeAttributes), "map[made:"+made+" size:1073741824 used:268435456 usedPerSecond:1024]"; got != want {
			c.Errorf("attributes %s, want %s", got, want)
		}
		for _, class := range []string{"wrong", "negative"} {
			if pv := c.volume(c.claim(class, class, "")); pv != nil {
				c.Errorf("a volume of the class %s: %v", class, pv.Spec)
			}
		}
		list, err := c.CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
		c.no(err)
		if len(list.Items) != 2 || !strings.Contains(list.Items[0].Message, "use a number of bytes, such as 2Gi") {
			c.Errorf("events: %+v", list.Items)
		}
	})
}

// A copy of a claim is made when that claim has its volume. From other sources, and from a claim of another driver, no volume is made, and an event on the claim
// says why, once.
func TestVolumesFromASource(t *testing.T) {
	t.Parallel()
	within(t, func(c *cluster) {
		claims := c.CoreV1().PersistentVolumeClaims("default")
		from := func(name, group, kind, source string) *v1.PersistentVolumeClaim {
			c.Helper()
			ref := &v1.TypedObjectReference{Kind: kind, Name: source}
			if group != "" {
				ref.APIGroup = &group
			}
			claim := c.claim(name+"-draft", "at-once", "")
			c.no(claims.Delete(c.Context(), claim.Name, metav1.DeleteOptions{}))
			claim.Name, claim.UID, claim.ResourceVersion, claim.Spec.DataSourceRef = name, "", "", ref
			claim, err := claims.Create(c.Context(), claim, metav1.CreateOptions{})
			c.no(err)
			return claim
		}
		events := func(claim *v1.PersistentVolumeClaim) (out []string) {
			c.Helper()
			list, err := c.CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
			c.no(err)
			for i := range list.Items {
				if e := &list.Items[i]; e.InvolvedObject.UID == claim.UID {
					out = append(out, e.Reason+": "+e.Message)
				}
			}
			return out
		}
		snap := from("restored", "snapshot.storage.k8s.io", "VolumeSnapshot", "s")
		if pv, got := c.volume(snap), events(snap); pv != nil || len(got) != 1 || !strings.Contains(got[0], "ProvisioningFailed: a simulated driver makes no volume from VolumeSnapshot.snapshot.storage.k8s.io default/s") {
			c.Errorf("a volume from a snapshot: %v, events %q", pv, got)
		}
		early := from("early", "", "PersistentVolumeClaim", "source")
		if pv, got := c.volume(early), events(early); pv != nil || len(got) != 1 || !strings.Contains(got[0], "the claim source, of which the volume is to be a copy, has no volume of the driver disks.example.com yet") {
			c.Errorf("a copy of a claim that does not exist: %v, events %q", pv, got)
		}
		source := c.claim("source", "at-once", "")
		pv := c.volume(source)
		bound := fmt.Appendf(nil, `{"spec":{"volumeName":%q}}`, pv.Name)
		_, err := claims.Patch(c.Context(), "source", types.MergePatchType, bound, metav1.PatchOptions{})
		c.no(err)
		_, err = claims.Patch(c.Context(), "source", types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status")
		c.no(err)
		if pv := c.volume(early); pv == nil || pv.Spec.CSI.Driver != driver {
			c.Errorf("a copy of a claim that has its volume now: %v", pv)
		}
	})
}

// A node without the driver gets no volume until it has the driver.
func TestNodeWithoutTheDriver(t *testing.T) {
	t.Parallel()
	within(t, func(c *cluster) {
		claim := c.claim("d", "waits", "n3")
		if pv := c.volume(claim); pv != nil {
			c.Fatalf("the volume %s for a node that does not exist", pv.Name)
		}
		_, err := c.CoreV1().Nodes().Create(c.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}, metav1.CreateOptions{})
		c.no(err)
		_, err = c.StorageV1().CSINodes().Create(c.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n3"}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "n3"}},
		}}, metav1.CreateOptions{})
		c.no(err)
		if pv := c.volume(claim); pv == nil || pv.Spec.NodeAffinity != nil {
			c.Errorf("the volume of a driver without topology: %+v", pv)
		}
	})
}

// A volume is attached at once. When its claim asks for more, the volume grows and the node is told. When the claim is gone, the volume is
// deleted, but not before it is detached.
func TestLifeOfAVolume(t *testing.T) {
	t.Parallel()
	within(t, func(c *cluster) {
		claims, volumes := c.CoreV1().PersistentVolumeClaims("default"), c.CoreV1().PersistentVolumes()
		claim := c.claim("d", "waits", "n1")
		pv := c.volume(claim)
		merge := func(body string) (types.PatchType, []byte, metav1.PatchOptions) {
			return types.MergePatchType, []byte(body), metav1.PatchOptions{}
		}
		patch := func(body string, subresources ...string) {
			c.Helper()
			kind, data, opts := merge(body)
			_, err := claims.Patch(c.Context(), "d", kind, data, opts, subresources...)
			c.no(err)
		}
		patch(fmt.Sprintf(`{"spec":{"volumeName":%q}}`, pv.Name))
		patch(`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`, "status")
		attachments := c.StorageV1().VolumeAttachments()
		_, err := attachments.Create(c.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
		}}, metav1.CreateOptions{})
		c.no(err)
		time.Sleep(time.Second)
		if a, err := attachments.Get(c.Context(), "a", metav1.GetOptions{}); err != nil || !a.Status.Attached {
			c.Errorf("after a second the volume is not attached: %+v, %v", a, err)
		}
		patch(`{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)
		time.Sleep(5 * time.Second)
		grown, err := claims.Get(c.Context(), "d", metav1.GetOptions{})
		c.no(err)
		pv, err = volumes.Get(c.Context(), pv.Name, metav1.GetOptions{})
		c.no(err)
		if got := fmt.Sprint(pv.Spec.Capacity.Storage(), grown.Status.AllocatedResources.Storage(), grown.Status.AllocatedResourceStatuses); got != "3Gi 3Gi map[storage:NodeResizePending]" {
			c.Errorf("after the claim asked for 3Gi: %s", got)
		}
		kind, data, opts := merge(`{"status":{"phase":"Released"}}`)
		_, err = volumes.Patch(c.Context(), pv.Name, kind, data, opts, "status")
		c.no(err)
		if c.volume(claim) == nil {
			c.Error("the volume is deleted while it is attached")
		}
		c.no(attachments.Delete(c.Context(), "a", metav1.DeleteOptions{}))
		if pv := c.volume(claim); pv != nil {
			c.Errorf("the volume of a claim that is gone is left: %+v", pv.Status)
		}
	})
}
