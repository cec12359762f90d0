package status

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func TestPatchSaysOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	later := metav1.NewTime(at.Add(time.Hour))
	cond := func(t v1.PodConditionType, s v1.ConditionStatus, reason string) v1.PodCondition {
		return v1.PodCondition{Type: t, Status: s, Reason: reason, LastTransitionTime: at}
	}
	cases := []struct {
		name       string
		base, want v1.PodStatus
		patch      string
	}{
		{"nothing", v1.PodStatus{Phase: "Running", StartTime: &at}, v1.PodStatus{Phase: "Running", StartTime: &later}, ``},
		{"phase", v1.PodStatus{Phase: "Pending"}, v1.PodStatus{Phase: "Running"}, `{"phase":"Running"}`},
		{"reason removed", v1.PodStatus{Reason: "X"}, v1.PodStatus{}, `{"reason":null}`},
		{"terminal phase kept", v1.PodStatus{Phase: "Failed", Reason: "Evicted"}, v1.PodStatus{Phase: "Running", HostIP: "1.1.1.1"}, `{"hostIP":"1.1.1.1"}`},
		{"resource claims belong to another component", v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "c"}}}, v1.PodStatus{}, ``},
		{
			"addresses go whole",
			v1.PodStatus{PodIPs: []v1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}, v1.PodStatus{PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}},
			`{"podIPs":[{"$patch":"replace"},{"ip":"10.0.0.2"}]}`,
		},
		{"addresses removed", v1.PodStatus{HostIPs: []v1.HostIP{{IP: "10.0.0.1"}}}, v1.PodStatus{}, `{"hostIPs":[{"$patch":"replace"}]}`},
		{
			"conditions by type",
			v1.PodStatus{Conditions: []v1.PodCondition{cond("PodScheduled", "True", ""), cond("x.io/gate", "True", ""), cond("Ready", "False", "R"), cond("PodResizePending", "True", "")}},
			v1.PodStatus{Conditions: []v1.PodCondition{cond("Ready", "True", ""), cond("x.io/gate", "False", "")}},
			`{"conditions":[{"type":"Ready","status":"True","reason":null,"lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:05Z"},
			  {"$patch":"delete","type":"PodResizePending"}]}`,
		},
		{
			"same status keeps its transition time",
			v1.PodStatus{Conditions: []v1.PodCondition{cond("Ready", "True", "")}},
			v1.PodStatus{Conditions: []v1.PodCondition{{Type: "Ready", Status: "True", LastTransitionTime: later}}}, ``,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			raw, err := buildPatch("u", &c.base, &c.want)
			if err != nil {
				t.Fatal(err)
			}
			if differs(&c.base, &c.want) != (raw != nil) {
				t.Errorf("differs says %t, the patch is %s", raw == nil, raw)
			}
			var got, want any
			if raw != nil {
				_ = json.Unmarshal(raw, &got)
			}
			if c.patch != "" {
				if err := json.Unmarshal([]byte(`{"metadata":{"uid":"u"},"status":`+c.patch+`}`), &want); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if raw == nil {
				return
			}
			// If the patch is applied as an API server applies it, the resulting status equals the one that merge returns.
			before, _ := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: c.base})
			after, err := strategicpatch.StrategicMergePatch(before, raw, v1.Pod{})
			if err != nil {
				t.Fatal(err)
			}
			var p v1.Pod
			if err := json.Unmarshal(after, &p); err != nil {
				t.Fatal(err)
			}
			if differs(&p.Status, &c.want) {
				t.Errorf("after the patch the API still differs: %s", cmp.Diff(merge(&p.Status, &c.want), p.Status))
			}
		})
	}
}
