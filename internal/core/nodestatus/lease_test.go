package nodestatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRenewLease(t *testing.T) {
	t.Parallel()
	l := NewLease("n")
	RenewLease(l, "n", "", 40*time.Second, at(1))
	if l.Namespace != v1.NamespaceNodeLease || l.Name != "n" || *l.Spec.HolderIdentity != "n" || *l.Spec.LeaseDurationSeconds != 40 ||
		!l.Spec.RenewTime.Time.Equal(at(1)) || len(l.OwnerReferences) != 0 {
		t.Errorf("without a Node: %v", l)
	}
	RenewLease(l, "n", "u", 40*time.Second, at(2))
	if owner := (metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}); len(l.OwnerReferences) != 1 || l.OwnerReferences[0] != owner || !l.Spec.RenewTime.Time.Equal(at(2)) {
		t.Errorf("with one: %v", l)
	}
	RenewLease(l, "n", "v", 40*time.Second, at(3))
	if len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "u" {
		t.Errorf("another's: %v", l.OwnerReferences)
	}
	if l.ManagedFields != nil {
		t.Errorf("a lease without managed fields has now %v", l.ManagedFields)
	}
	l.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "a"}, {Manager: "b"}}
	RenewLease(l, "n", "u", 40*time.Second, at(4))
	if len(l.ManagedFields) != 1 || l.ManagedFields[0] != (metav1.ManagedFieldsEntry{}) {
		t.Errorf("managed fields %v, want one empty entry, by which the API server strips them", l.ManagedFields)
	}
}
