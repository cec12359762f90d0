package mergepatch_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
)

func TestStructSaysOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	q := resource.MustParse
	cases := map[string]struct{ from, to v1.PodStatus }{
		`{}`:                 {v1.PodStatus{Phase: "Running", StartTime: &at}, v1.PodStatus{Phase: "Running", StartTime: at.DeepCopy()}},
		`{"phase":"Failed"}`: {v1.PodStatus{Phase: "Running"}, v1.PodStatus{Phase: "Failed"}},
		`{"message":null,"startTime":"2026-01-02T03:04:05Z"}`:  {v1.PodStatus{Message: "m"}, v1.PodStatus{StartTime: &at}},
		`{"allocatedResources":{"cpu":"2","gone":null}}`:       {v1.PodStatus{AllocatedResources: v1.ResourceList{"cpu": q("1"), "gone": q("1"), "memory": q("1Gi")}}, v1.PodStatus{AllocatedResources: v1.ResourceList{"cpu": q("2"), "memory": q("1024Mi")}}},
		`{"resources":{"limits":{"cpu":"1"},"requests":null}}`: {v1.PodStatus{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": q("1")}}}, v1.PodStatus{Resources: &v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": q("1")}}}},
		`{"resources":{}}`:   {v1.PodStatus{}, v1.PodStatus{Resources: &v1.ResourceRequirements{}}},
		`{"resources":null}`: {v1.PodStatus{Resources: &v1.ResourceRequirements{}}, v1.PodStatus{}},
		`{"hostIPs":null,"podIPs":[{"ip":"10.0.0.2"},{"ip":"fd00::2"}]}`: {v1.PodStatus{PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, HostIPs: []v1.HostIP{{IP: "1.1.1.1"}}}, v1.PodStatus{PodIPs: []v1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}, HostIPs: []v1.HostIP{}}},
	}
	for want, c := range cases {
		got, err := json.Marshal(mergepatch.Struct(&c.from, &c.to))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestAPatchMakesTheSecondObjectOfTheFirst makes the patch between two random Nodes, applies it to the first one like an API server, and
// checks that the result equals the second one.
func TestAPatchMakesTheSecondObjectOfTheFirst(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		from, to := someNode(r), someNode(r)
		status := mergepatch.Struct(&from.Status, &to.Status)
		delete(status, "conditions")
		id := func(c *v1.NodeCondition) string { return string(c.Type) }
		if c := mergepatch.Keyed("type", id, from.Status.Conditions, to.Status.Conditions); len(c) > 0 {
			status["conditions"] = c
		}
		if _, ok := status["addresses"]; ok {
			status["addresses"] = mergepatch.Replace(to.Status.Addresses)
		}
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			t.Fatal(err)
		}
		before, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Node{})
		if err != nil {
			t.Fatalf("seed %d: %v: %s", seed, err, patch)
		}
		var got v1.Node
		if err := json.Unmarshal(after, &got); err != nil {
			t.Fatal(err)
		}
		byType := map[v1.NodeConditionType]v1.NodeCondition{} // the order may differ
		for _, c := range got.Status.Conditions {
			byType[c.Type] = c
		}
		for _, c := range to.Status.Conditions {
			if !equality.Semantic.DeepEqual(byType[c.Type], c) {
				t.Errorf("seed %d: condition %s:\n%s", seed, c.Type, cmp.Diff(c, byType[c.Type]))
			}
			delete(byType, c.Type)
		}
		got.Status.Conditions = to.Status.Conditions
		if len(byType) > 0 || !equality.Semantic.DeepEqual(&got.Status, &to.Status) {
			t.Errorf("seed %d: conditions left over %v\n%s\n%s", seed, byType, patch, cmp.Diff(to.Status, got.Status))
		}
	}
}

func someNode(r *rand.Rand) *v1.Node {
	some := func(values ...string) string { return values[r.IntN(len(values))] }
	list := func() v1.ResourceList {
		l := v1.ResourceList{}
		for _, name := range []v1.ResourceName{"cpu", "memory", "x.io/dev"} {
			if v := some("", "0", "1", "1Gi", "1000m"); v != "" {
				l[name] = resource.MustParse(v)
			}
		}
		return l
	}
	n := &v1.Node{Status: v1.NodeStatus{
		Capacity: list(), Allocatable: list(),
		NodeInfo:        v1.NodeSystemInfo{BootID: some("", "b1", "b2"), KernelVersion: some("6", "7")},
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: int32(r.IntN(2)) * 10250}},
	}}
	if r.IntN(2) == 0 {
		n.Status.NodeInfo.Swap = &v1.NodeSwapStatus{}
		if r.IntN(2) == 0 {
			n.Status.NodeInfo.Swap.Capacity = new(int64)
		}
	}
	for _, kind := range []v1.NodeConditionType{"Ready", "DiskPressure", "theirs"} {
		if r.IntN(3) > 0 {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: kind, Status: v1.ConditionStatus(some("True", "False")),
				Reason: some("", "R"), Message: some("", "m"), LastHeartbeatTime: metav1.Unix(int64(r.IntN(2)), 0)})
		}
	}
	for range r.IntN(3) {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: some("1.1.1.1", "2.2.2.2", "fd00::1")})
	}
	for range r.IntN(3) {
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{some("a", "b")}, SizeBytes: int64(r.IntN(2))})
	}
	return n
}
