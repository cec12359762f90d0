package why

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// pressedNode is a node with one condition and a threshold of 1 GiB of memory, with 200 MiB of minimum reclaim. available are the bytes that
// the node measured one after another, a minute apart; the last measurement was now.
func pressedNode(status v1.ConditionStatus, available ...int64) *NodeInput {
	threshold := func(s pressure.Signal, value, reclaim string) pressure.Threshold {
		v, r := resource.MustParse(value), resource.MustParse(reclaim)
		return pressure.Threshold{Signal: s, Value: pressure.Value{Quantity: &v}, MinReclaim: &pressure.Value{Quantity: &r}}
	}
	in := &NodeInput{
		Node:       &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: status}}}},
		Thresholds: []pressure.Threshold{threshold(pressure.MemoryAvailable, "1Gi", "200Mi"), threshold(pressure.NodefsInodesFree, "1k", "0")},
		Transition: 5 * time.Minute, Endpoint: "unix:///run/c.sock",
	}
	for i, n := range available {
		in.Signals = pressure.Signals{pressure.MemoryAvailable: {Available: n, Capacity: 4 << 30}}
		in.Pressure = pressure.Evaluate(pressure.Input{
			Signals: in.Signals, Thresholds: in.Thresholds, TransitionPeriod: in.Transition, Previous: in.Pressure.State,
			Now: now.Add(time.Duration(i+1-len(available)) * time.Minute),
		})
	}
	return in
}

// NodeChanges says what a pressure condition waits for: how much has to become free, or how long it must stay free.
func TestNodeChangesOfPressure(t *testing.T) {
	t.Parallel()
	const mi = 1 << 20
	for _, tt := range []struct {
		name string
		in   *NodeInput
		line string
		at   time.Time
	}{
		{"no pressure", pressedNode(v1.ConditionFalse, 3<<30), "it becomes True below a threshold: memory.available is 3Gi, with the threshold 1Gi", time.Time{}},
		{"a crossing that is not reported yet", pressedNode(v1.ConditionFalse, 512*mi), "it becomes True at once: memory.available is 512Mi, already below 1224Mi", time.Time{}},
		{"pressure", pressedNode(v1.ConditionTrue, 512*mi), "memory.available is 512Mi and has to reach 1224Mi, so 712Mi more have to become free; it ends 5m0s after that", time.Time{}},
		{"above the threshold, below the minimum reclaim", pressedNode(v1.ConditionTrue, 512*mi, 1100*mi),
			"memory.available is 1100Mi and has to reach 1224Mi, so 124Mi more have to become free; it ends 5m0s after that", time.Time{}},
		{"above both", pressedNode(v1.ConditionTrue, 512*mi, 2<<30), "it ends if this stays so: memory.available is 2Gi, with the threshold 1Gi", now.Add(4 * time.Minute)},
		{"not measured", pressedNode(v1.ConditionUnknown), "it is known as soon as one of these can be measured: memory.available", time.Time{}},
	} {
		got := NodeChanges(tt.in)
		if len(got) != 1 || got[0].Line != tt.line || !got[0].At.Equal(tt.at) {
			t.Errorf("%s: %+v, want %q at %v", tt.name, got, tt.line, tt.at)
		}
	}
	in := pressedNode(v1.ConditionFalse, 3<<30)
	in.Node.Status.Conditions[0].Type = v1.NodePIDPressure
	if got := NodeChanges(in); got[0].Line != "nothing: no eviction threshold is configured for it" {
		t.Errorf("no threshold: %+v", got)
	}
	in.Node.Status.Conditions[0].Type = v1.NodeNetworkUnavailable
	if got := NodeChanges(in); !strings.Contains(got[0].Line, "another component") {
		t.Errorf("a condition of others: %+v", got)
	}
}

// NodeChanges says which problems have to end so that the node becomes Ready, and what a person can do.
func TestNodeChangesOfReady(t *testing.T) {
	t.Parallel()
	status := func(runtime, network bool) *runtimeapi.StatusResponse {
		return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: runtime}, {Type: runtimeapi.NetworkReady, Status: network},
		}}}
	}
	for _, tt := range []struct {
		name string
		in   NodeInput
		line string
		do   string
	}{
		{"the runtime is away", NodeInput{Runtime: nodestatus.Runtime{Err: "refused"}}, "the runtime answers at unix:///run/c.sock", "crictl --runtime-endpoint unix:///run/c.sock info"},
		{"the runtime is not ready", NodeInput{Runtime: nodestatus.Runtime{Status: status(false, true)}}, "the runtime reports that it is ready", "journalctl"},
		{"no network", NodeInput{Runtime: nodestatus.Runtime{Status: status(true, false)}}, "the runtime reports that its network is ready", "/etc/cni/net.d"},
		{"inspections hang, and the machine shuts down", NodeInput{Runtime: nodestatus.Runtime{Status: status(true, true)}, Inspections: "PLEG is not healthy", Down: true},
			"the runtime answers the inspections of pods (PLEG is not healthy), and the machine has started again, because it shuts down now", ""},
		{"something else", NodeInput{Runtime: nodestatus.Runtime{Status: status(true, true)}}, "the problems in its message have ended", ""},
	} {
		in := tt.in
		in.Endpoint = "unix:///run/c.sock"
		in.Node = &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}}}
		got := NodeChanges(&in)
		if len(got) != 1 || got[0].Line != "it becomes True as soon as "+tt.line || !strings.Contains(strings.Join(got[0].Do, "\n"), tt.do) {
			t.Errorf("%s: %+v, want %q and %q", tt.name, got, tt.line, tt.do)
		}
		in.Node.Status.Conditions[0].Status = v1.ConditionTrue
		if got := NodeChanges(&in); len(got) != 0 {
			t.Errorf("%s: a node that is ready: %+v", tt.name, got)
		}
	}
}
