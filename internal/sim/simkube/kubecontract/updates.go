package kubecontract

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func otherNamespace(t *testing.T, e *env) {
	p := e.pod(t, "a")
	p.Namespace = "default"
	if _, err := e.CoreV1().Pods(e.ns).Update(t.Context(), p, metav1.UpdateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("%v, want a bad request", err)
	}
	if _, err := e.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("in the other namespace: %v, want not found", err)
	}
}

func deletedStatus(t *testing.T, e *env) {
	p := e.pod(t, "a")
	err := e.CoreV1().RESTClient().Delete().Namespace(e.ns).Resource("pods").Name("a").SubResource("status").Do(t.Context()).Error()
	if !apierrors.IsMethodNotSupported(err) {
		t.Errorf("%v, want method not supported", err)
	}
	if now := e.get(t, "a"); now.UID != p.UID || now.DeletionTimestamp != nil {
		t.Errorf("the pod is now %v", now.ObjectMeta)
	}
}

func claimStatus(t *testing.T, e *env) {
	claims := e.CoreV1().PersistentVolumeClaims(e.ns)
	c, err := claims.Create(t.Context(), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		StorageClassName: new("none"),
		Resources:        v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Spec.VolumeName, c.Status.Phase = "other", v1.ClaimLost
	c, err = claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	if err != nil || c.Spec.VolumeName != "" || c.Status.Phase != v1.ClaimLost {
		t.Errorf("after an update of the status: volume %q, phase %s, err %v", c.Spec.VolumeName, c.Status.Phase, err)
	}
	c.Labels, c.Status.Phase = map[string]string{"a": "b"}, v1.ClaimBound
	c, err = claims.Update(t.Context(), c, metav1.UpdateOptions{})
	if err != nil || c.Labels["a"] != "b" || c.Status.Phase != v1.ClaimLost {
		t.Errorf("after an update: labels %v, phase %s, err %v", c.Labels, c.Status.Phase, err)
	}
}

func largeNumbers(t *testing.T, e *env) {
	const grace = 1<<53 + 1 // float64 cannot represent this number
	e.pod(t, "a", func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(grace)) })
	p, err := e.CoreV1().Pods(e.ns).Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil || p.Labels["a"] != "b" || *p.Spec.TerminationGracePeriodSeconds != grace {
		t.Errorf("labels %v, grace %d, err %v", p.Labels, *p.Spec.TerminationGracePeriodSeconds, err)
	}
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
}
