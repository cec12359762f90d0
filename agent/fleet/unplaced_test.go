package fleet_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// The fleet says how many of its pods have no node, and what the scheduler says about one of them. Pods with a node and pods of others do not count.
func TestUnplaced(t *testing.T) {
	t.Parallel()
	kube := simkube.New(simkube.Config{})
	f, err := fleet.New(fleet.Config{Name: "f", Groups: []fleet.Group{{Name: "node", Count: 1}}, Client: kube.RESTConfig("test"), Identity: fleet.Shared})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(kube.RESTConfig("test"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.CreatePods(t.Context(), "default", 3); err != nil {
		t.Fatal(err)
	}
	if done, all := f.Creation(); done != 3 || all != 3 {
		t.Errorf("%d of %d pods are created, want 3 of 3", done, all)
	}
	pods := client.CoreV1().Pods("default")
	other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	if _, err := pods.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if u, err := f.Unplaced(t.Context()); err != nil || u != (fleet.Unplaced{Pods: 3}) {
		t.Errorf("before the scheduler has tried: %+v, %v", u, err)
	}
	p, err := pods.Get(t.Context(), "f-pod-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "0/1 nodes are available"}}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	placed := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "placed", Labels: map[string]string{fleet.LabelFleet: "f"}},
		Spec:       v1.PodSpec{NodeName: "f-node-1", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := pods.Create(t.Context(), placed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if u, err := f.Unplaced(t.Context()); err != nil || u != (fleet.Unplaced{Pods: 3, Pod: "default/f-pod-2", Says: "0/1 nodes are available"}) {
		t.Errorf("%+v, %v", u, err)
	}
}
