package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

const goodScenario = `apiVersion: wherry.dev/v1alpha1
kind: FleetScenario
seed: 7
events:
- name: registry down
  when: {podsRunning: 500, nodesReady: 10}
  after: 30s
  every: 1m
  jitter: 10s
  times: 5
  for: 20s
  nodes: {percent: 10, group: small}
  fault: runtime
  runtime: {method: PullImage, error: the registry is down, chance: 0.5}
- fault: exit
  exit: {pod: "web-*", percent: 5, oom: true}
`

func TestParseScenario(t *testing.T) {
	t.Parallel()
	s, err := ParseScenario("s.yaml", []byte(goodScenario))
	if err != nil {
		t.Fatal(err)
	}
	want := &Scenario{Name: "s.yaml", Seed: 7, Events: []Event{
		{
			Name: "registry down", When: Condition{10, 500}, After: 30 * time.Second, Every: time.Minute, Jitter: 10 * time.Second, Times: 5,
			Nodes: Selector{Percent: 10, Group: "small"},
			Fault: Fault{Kind: FaultRuntime, For: 20 * time.Second, Runtime: simulated.Fault{Method: "PullImage", Error: "the registry is down", Chance: 0.5}},
		},
		{Name: "exit 2", Times: 1, Nodes: Selector{All: true}, Fault: Fault{Kind: FaultExit, Exit: Exit{Pod: "web-*", Percent: 5, OOM: true}}},
	}}
	if diff := cmp.Diff(want, s, cmpopts.IgnoreUnexported(Scenario{})); diff != "" {
		t.Error(diff)
	}
}

// The error for each invalid scenario names the file, the line and the field.
func TestBadScenarios(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: wherry.dev/v1alpha1\nkind: FleetScenario\nevents:\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "\n", "s.yaml: the scenario is empty"},
		{"another kind", "apiVersion: wherry.dev/v1alpha1\nkind: FleetTemplate\n", "must be wherry.dev/v1alpha1 and FleetScenario"},
		{"no events", "apiVersion: wherry.dev/v1alpha1\nkind: FleetScenario\nevents: []\n", "s.yaml:3: events: a scenario needs at least one event"},
		{"unknown field", head + "- fault: crash\n  nodess: {}\n", `s.yaml:5: events[0].nodess: unknown field; did you mean "nodes"?`},
		{"unknown fault", head + "- fault: fire\n", `s.yaml:4: events[0].fault: fault "fire": use one of`},
		{"no fault", head + "- for: 1s\n", `s.yaml:4: events[0].fault: fault "": use one of`},
		{"two ways", head + "- fault: crash\n  nodes: {count: 1, percent: 2}\n", "s.yaml:5: events[0].nodes: choose the nodes in one way"},
		{"bad labels", head + "- fault: crash\n  nodes: {labels: \"a in\"}\n", `s.yaml:5: events[0].nodes.labels: label selector "a in": `},
		{"part of another fault", head + "- fault: crash\n  delay: 1s\n", "s.yaml:5: events[0].delay: only the fault slow-api has this field"},
		{"runtime without effect", head + "- fault: runtime\n  runtime: {method: PullImage}\n", "s.yaml:5: events[0].runtime: a fault of the runtime needs"},
		{"unknown method", head + "- fault: runtime\n  runtime:\n    hang: true\n    method: PulImage\n", `s.yaml:7: events[0].runtime.method: method "PulImage": CRI v1 has no such method; did you mean PullImage?`},
		{"method of another API", head + "- fault: runtime\n  runtime: {hang: true, method: a/B}\n", `s.yaml:5: events[0].runtime.method: method "a/B"`},
		{"no delay", head + "- fault: slow-api\n", "s.yaml:4: events[0].delay: fault slow-api needs a delay"},
		{"no pressure", head + "- fault: pressure\n", "s.yaml:4: events[0].pressure: set memory, disk or processes"},
		{"pressure over 100", head + "- fault: pressure\n  pressure: {disk: 101}\n", "s.yaml:5: events[0].pressure.disk: use 0 to 100"},
		{"bad pattern", head + "- fault: exit\n  exit: {pod: \"[\"}\n", "s.yaml:5: events[0].exit.pod: \"[\" is no pattern"},
		{"exit that lasts", head + "- fault: exit\n  for: 1s\n", "s.yaml:5: events[0].for: fault exit happens once"},
		{"times without every", head + "- fault: crash\n  times: 2\n", "s.yaml:5: events[0].times: a fault that happens several times needs every"},
		{"every without times", head + "- fault: crash\n  every: 2s\n", "s.yaml:5: events[0].every: set times"},
		{"negative time", head + "- fault: crash\n  after: -2s\n", "s.yaml:5: events[0].after: use a time"},
		{"negative condition", head + "- fault: crash\n  when: {podsRunning: -1}\n", "s.yaml:5: events[0].when: use numbers from 0 on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := ParseScenario("s.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("scenario %v, error %v, want %q", s, err, c.want)
			}
		})
	}
}

// A scenario with an event that can never happen in the fleet is refused. Each problem has file, line and field.
func TestScenarioThatDoesNotFit(t *testing.T) {
	t.Parallel()
	f, err := New(Config{Client: simkube.New(simkube.Config{}).RESTConfig("test"), Name: "f", Groups: []Group{
		{Name: "a", Count: 2, NodeName: "{fleet}-{zone}{index:3}", Zones: []string{"z1", "z"}, Devices: []simulated.Devices{{Resource: "example.com/gpu", Count: 1}}},
		{Name: "b", Count: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: wherry.dev/v1alpha1\nkind: FleetScenario\nevents:\n"
	for _, c := range []struct{ name, text, want string }{
		{"group", "- fault: crash\n  nodes:\n    count: 1\n    group: big\n", `s.yaml:7: events[0].nodes.group: "big": no such group`},
		{"labels", "- fault: crash\n  nodes:\n    labels: topology.kubernetes.io/zone=z9\n", `s.yaml:6: events[0].nodes.labels: "topology.kubernetes.io/zone=z9": the fleet cannot have a node with such labels`},
		{"labels of another group", "- {fault: crash, nodes: {group: b, labels: topology.kubernetes.io/zone=z1}}\n", "events[0].nodes.labels"},
		{"name", "- fault: crash\n  nodes:\n    names:\n    - f-b-1\n    - f-c-1\n", `s.yaml:8: events[0].nodes.names[1]: "f-c-1": the fleet cannot have such a node: its names are like f-z1001`},
		{"name of another group", "- fault: crash\n  nodes: {group: b, names: [f-z1001]}\n", `events[0].nodes.names[0]: "f-z1001": the fleet cannot have such a node: its names are like f-b-1`},
		{"wrong zone", "- {fault: crash, nodes: {names: [f-z001]}}\n", `"f-z001"`}, // node 1 is in zone z1
		{"no padding", "- {fault: crash, nodes: {names: [f-z11]}}\n", `"f-z11"`},
		{"index 0", "- {fault: crash, nodes: {names: [f-b-0]}}\n", `"f-b-0"`},
		{"index too large", "- {fault: crash, nodes: {names: [f-b-100001]}}\n", `"f-b-100001"`},
		{"very long name", "- {fault: crash, nodes: {names: [" + strings.Repeat("f1", 50_000) + "]}}\n", "the fleet cannot have such a node"},
		{"unknown devices", "- fault: devices\n  devices:\n    resource: example.com/tpu\n", `s.yaml:6: events[0].devices.resource: "example.com/tpu": the chosen nodes have no such devices`},
		{"devices of another group", "- fault: devices\n  devices: {resource: example.com/gpu}\n  nodes: {group: b}\n", "events[0].devices.resource"},
		{"devices of another node", "- fault: devices\n  devices: {resource: example.com/gpu}\n  nodes: {names: [f-z1001, f-b-1]}\n", "events[0].devices.resource"},
		{"two events", "- {fault: crash, nodes: {group: x}}\n- {fault: crash, nodes: {group: z}}\n", "s.yaml:5: events[1].nodes.group"},
		{"many events", strings.Repeat("- {fault: crash, nodes: {group: x}}\n", 1000), "more than 50 problems"},
	} {
		s, err := ParseScenario("s.yaml", []byte(head+c.text))
		if err != nil {
			t.Fatal(c.name, err)
		}
		if err := f.Check(s); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 10_000 {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	good := head + `- fault: devices
  devices: {resource: example.com/gpu}
- {fault: crash, nodes: {names: [f-z1001, f-z002, f-z1099, f-z1100, f-z100000, f-b-1, f-b-100000]}}
- {fault: crash, nodes: {group: b, names: [f-b-7]}}
- {fault: crash, nodes: {labels: "topology.kubernetes.io/zone=z", percent: 50}}
`
	s, err := ParseScenario("s.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Check(s); err != nil {
		t.Error(err)
	}
	if err := f.Check(&Scenario{Events: []Event{{Nodes: Selector{Group: "x"}}}}); err == nil || err.Error() != `events[0].nodes.group: "x": no such group` {
		t.Errorf("a scenario from no file: %v", err)
	}
}
