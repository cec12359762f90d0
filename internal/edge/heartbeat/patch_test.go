package heartbeat

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// The patch contains only fields that the agent owns. If it is applied to the old Node, the result is the new Node: a dual-stack node
// keeps two addresses of the same type.
func TestStatusPatch(t *testing.T) {
	t.Parallel()
	address := func(kind v1.NodeAddressType, ip string) v1.NodeAddress {
		return v1.NodeAddress{Type: kind, Address: ip}
	}
	base := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: "5", Labels: map[string]string{"theirs": "1", "gone": "1"}},
		Spec:       v1.NodeSpec{Unschedulable: true},
		Status: v1.NodeStatus{
			Capacity:   v1.ResourceList{"cpu": resource.MustParse("1000m"), "memory": resource.MustParse("1024Mi"), "gone": resource.MustParse("1")},
			NodeInfo:   v1.NodeSystemInfo{BootID: "b1", Swap: &v1.NodeSwapStatus{}},
			Addresses:  []v1.NodeAddress{address(v1.NodeInternalIP, "192.0.2.1"), address(v1.NodeHostName, "n1")},
			Conditions: []v1.NodeCondition{{Type: "NetworkUnavailable", Status: v1.ConditionFalse}, {Type: v1.NodeReady, Status: v1.ConditionFalse}},
		},
	}
	next := base.DeepCopy()
	next.Spec.Unschedulable = false // the agent does not own this field, so the patch must not contain it
	next.Status.Addresses = []v1.NodeAddress{address(v1.NodeInternalIP, "192.0.2.1"), address(v1.NodeInternalIP, "2001:db8::1"), address(v1.NodeHostName, "n1")}
	next.Status.Conditions[1].Status = v1.ConditionTrue
	next.Labels = map[string]string{"theirs": "1", "ours": "1"}
	next.Status.Capacity = v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}
	next.Status.NodeInfo = v1.NodeSystemInfo{BootID: "b2"}
	patch, err := statusPatch(base, next)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"labels":{"gone":null,"ours":"1"}},"status":{` +
		`"addresses":[{"$patch":"replace"},{"type":"InternalIP","address":"192.0.2.1"},{"type":"InternalIP","address":"2001:db8::1"},{"type":"Hostname","address":"n1"}],` +
		`"capacity":{"cpu":"2","gone":null},` +
		`"conditions":[{"lastHeartbeatTime":null,"lastTransitionTime":null,"status":"True","type":"Ready"}],` +
		`"nodeInfo":{"bootID":"b2","swap":null}}}`
	if diff := cmp.Diff(want, string(patch)); diff != "" {
		t.Error(diff)
	}
	from, err := json.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := strategicpatch.StrategicMergePatch(from, patch, v1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var got v1.Node
	if err := json.Unmarshal(applied, &got); err != nil {
		t.Fatal(err)
	}
	next.Spec = base.Spec
	if diff := cmp.Diff(next, &got); diff != "" {
		t.Error(diff)
	}
}
