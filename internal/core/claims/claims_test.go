package claims_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/claims"
)

// world holds a pod and the objects behind its volume. newWorld returns one in which the pod can use its claim; each test case changes
// one object.
type world struct {
	pod   *v1.Pod
	vol   *v1.Volume
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume
	node  *v1.Node
}

func newWorld() *world {
	return &world{
		pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", UID: "pod-1"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}}},
		},
		vol: &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}},
		claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-db-0", UID: "claim-1"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv-1", StorageClassName: new("fast")},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		},
		pv: &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
			Spec: v1.PersistentVolumeSpec{
				ClaimRef:     &v1.ObjectReference{Namespace: "ns", Name: "data-db-0", UID: "claim-1"},
				NodeAffinity: &v1.VolumeNodeAffinity{Required: hosts("a")},
			},
		},
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1.LabelHostname: "a"}}},
	}
}

func hosts(names ...string) *v1.NodeSelector {
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: names},
	}}}}
}

// ephemeral makes the volume a generic ephemeral volume. Its claim belongs to the pod whose UID is owner.
func (w *world) ephemeral(owner string) {
	w.vol.VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
	w.claim.Name, w.pv.Spec.ClaimRef.Name = "db-0-data", "db-0-data"
	w.claim.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}
}

func (w *world) check() error {
	if _, err := claims.Check(w.pod, w.vol, w.claim); err != nil {
		return err
	}
	return claims.CheckVolume(w.pod, w.vol, w.claim, w.pv, w.node)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	block := v1.PersistentVolumeBlock
	deleted := metav1.NewTime(time.Unix(1, 0))
	for _, c := range []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"all is well", func(*world) {}, ""},
		{"pending", func(w *world) { w.claim.Status.Phase = v1.ClaimPending }, `waits for persistentvolumeclaim "data-db-0" to be bound (storage class "fast")`},
		{"pending without a class", func(w *world) { w.claim.Status.Phase, w.claim.Spec.StorageClassName = v1.ClaimPending, new("") },
			`waits for persistentvolumeclaim "data-db-0" to be bound (it names no storage class: it needs a persistentvolume without one)`},
		{"bound to nothing", func(w *world) { w.claim.Spec.VolumeName = "" }, `waits for persistentvolumeclaim "data-db-0" to be bound (storage class "fast")`},
		{"lost", func(w *world) { w.claim.Status.Phase = v1.ClaimLost },
			`persistentvolumeclaim "data-db-0" has lost its persistentvolume "pv-1": that was deleted, so the claim's data is gone; delete the claim and create it again`},
		{"being deleted", func(w *world) { w.claim.DeletionTimestamp = &deleted }, `persistentvolumeclaim "data-db-0" is being deleted`},
		{"being deleted, kept for its pods", func(w *world) {
			w.claim.DeletionTimestamp, w.claim.Finalizers = &deleted, []string{"kubernetes.io/pvc-protection"}
		}, ""},
		{"the volume is free", func(w *world) { w.pv.Spec.ClaimRef = nil }, `waits for persistentvolume "pv-1" to be bound to persistentvolumeclaim "data-db-0"`},
		{"the volume is another's", func(w *world) { w.pv.Spec.ClaimRef.UID = "claim-0" },
			`persistentvolume "pv-1" is bound to another claim, ns/data-db-0 (UID claim-0), not to ns/data-db-0 (UID claim-1)`},
		{"the volume is of another namespace", func(w *world) { w.pv.Spec.ClaimRef.Namespace = "other" },
			`persistentvolume "pv-1" is bound to another claim, other/data-db-0 (UID claim-1), not to ns/data-db-0 (UID claim-1)`},
		{"another volume", func(w *world) { w.pv.Name = "pv-2" }, `asked for persistentvolume "pv-1" and got "pv-2"`},
		{"another node", func(w *world) { w.pv.Spec.NodeAffinity.Required = hosts("b") },
			`persistentvolume "pv-1" cannot be used on this node: its nodeAffinity excludes the node; bind the pod to another node, or leave that to the scheduler`},
		{"any node", func(w *world) { w.pv.Spec.NodeAffinity = nil }, ""},
		{"a device in volumeMounts", func(w *world) { w.pv.Spec.VolumeMode = &block },
			`container "c" has the volume in volumeMounts, but persistentvolume "pv-1" has volumeMode Block: use volumeDevices`},
		{"a device", func(w *world) { w.pv.Spec.VolumeMode = &block; w.asDevice() }, claims.ErrBlock.Error()},
		{"a device of a CSI driver", func(w *world) {
			w.pv.Spec.VolumeMode = &block
			w.pv.Spec.CSI = &v1.CSIPersistentVolumeSource{}
			w.asDevice()
		}, ""},
		{"files in volumeDevices", (*world).asDevice,
			`container "c" has the volume in volumeDevices, but persistentvolume "pv-1" has volumeMode Filesystem: use volumeMounts`},
		{"ephemeral", func(w *world) { w.ephemeral("pod-1") }, ""},
		{"ephemeral, another's claim", func(w *world) { w.ephemeral("pod-2") },
			`persistentvolumeclaim "db-0-data" has the name of this ephemeral volume's claim, but it was not made for this pod: delete that claim, or rename the pod or the volume`},
		{"ephemeral, a claim that nobody owns", func(w *world) { w.ephemeral("pod-1"); w.claim.OwnerReferences = nil },
			`persistentvolumeclaim "db-0-data" has the name of this ephemeral volume's claim, but it was not made for this pod: delete that claim, or rename the pod or the volume`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			c.change(w)
			got := ""
			if err := w.check(); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func (w *world) asDevice() {
	c := &w.pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
}

func TestNames(t *testing.T) {
	t.Parallel()
	w := newWorld()
	if got := claims.Name(w.pod, w.vol); got != "data-db-0" {
		t.Errorf("name of the claim: %q", got)
	}
	w.ephemeral("pod-1")
	if got := claims.Name(w.pod, w.vol); got != "db-0-data" {
		t.Errorf("name of the ephemeral claim: %q", got)
	}
	if got := claims.Name(w.pod, &v1.Volume{Name: "x"}); got != "" {
		t.Errorf("a volume without a claim has one: %q", got)
	}
	if claims.Exclusive(w.claim) {
		t.Error("exclusive without the access mode")
	}
	w.claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	if !claims.Exclusive(w.claim) {
		t.Error("not exclusive with ReadWriteOncePod")
	}
	w.vol.VolumeSource = newWorld().vol.VolumeSource
	if got, want := claims.Missing(w.pod, w.vol).Error(), `persistentvolumeclaim "data-db-0" not found: create it in namespace "ns"`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
