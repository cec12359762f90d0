package agenttest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// withClaim gives a pod a volume from the PersistentVolumeClaim with this name.
func withClaim(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
}

// createClaim creates a PersistentVolumeClaim that is not bound.
func (w *World) createClaim(name string, modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolumeClaim {
	w.Helper()
	c, err := w.Admin.CoreV1().PersistentVolumeClaims(Namespace).Create(context.Background(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{AccessModes: modes},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// bindClaim binds a PersistentVolumeClaim to a new local volume on the node.
func (w *World) bindClaim(c *v1.PersistentVolumeClaim) {
	w.Helper()
	w.bindClaimTo(c, v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/mnt/disks/a"}})
}

// bindClaimTo binds a PersistentVolumeClaim to a new volume with this source.
func (w *World) bindClaimTo(c *v1.PersistentVolumeClaim, src v1.PersistentVolumeSource) {
	w.Helper()
	ctx := context.Background()
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + c.Name}, Spec: v1.PersistentVolumeSpec{
		Capacity:               v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: src,
		ClaimRef:               &v1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
	}}
	if _, err := w.Admin.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	c.Spec.VolumeName = pv.Name
	c, err := w.Admin.CoreV1().PersistentVolumeClaims(Namespace).Update(ctx, c, metav1.UpdateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	c.Status.Phase = v1.ClaimBound
	if _, err := w.Admin.CoreV1().PersistentVolumeClaims(Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// awaitFailedMount waits for an event about the pod with the reason FailedMount and a message that contains the text.
func (w *World) awaitFailedMount(name, text string) {
	w.Helper()
	w.Await("an event FailedMount with "+text, 5*time.Minute, func() bool {
		return slices.ContainsFunc(w.Kube.Events(Namespace, name), func(e *v1.Event) bool {
			return e.Reason == "FailedMount" && strings.Contains(e.Message, text)
		})
	})
}

// Until its claim is bound, a pod waits, and an event says why. Then the pod runs, and the node no longer reads the claim.
func TestPodWaitsForItsClaim(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("db", withClaim("data")))
		w.awaitFailedMount("db", `volume "data" : persistentvolumeclaim "data" not found: create it in namespace "default"`)
		c := w.createClaim("data")
		w.awaitFailedMount("db", `waits for persistentvolumeclaim "data" to be bound`)
		w.bindClaim(c)
		w.WaitReady("db")
		requests := func() int { return w.Kube.Count("get persistentvolumeclaims") + w.Kube.Count("get persistentvolumes") }
		before := requests()
		time.Sleep(time.Hour)
		if n := requests() - before; n != 0 {
			t.Errorf("%d requests about the claim of a pod at rest", n)
		}
		if n := w.Kube.Count("list persistentvolumeclaims") + w.Kube.Count("watch persistentvolumeclaims"); n != 0 {
			t.Errorf("%d lists and watches of claims: the Node authorizer refuses them", n)
		}
		w.Delete("db", 5)
		w.WaitGone("db")
	})
}

// The second pod that uses a ReadWriteOncePod claim starts as soon as the first one has ended.
func TestReadWriteOncePod(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.bindClaim(w.createClaim("one", v1.ReadWriteOncePod))
		w.Create(Pod("a", withClaim("one")))
		w.WaitReady("a")
		w.Create(Pod("b", withClaim("one")))
		w.awaitFailedMount("b", "pod default/a of this node still uses it")
		time.Sleep(20 * time.Minute) // by then the back-off of the second pod has its maximum
		w.Delete("a", 5)
		w.WaitGone("a")
		w.Await("the second pod runs", 3*time.Second, func() bool { return Ready(w.Kube.Pod(Namespace, "b")) })
	})
}
