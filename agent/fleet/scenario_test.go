package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/agent/simulated"
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
	if diff := cmp.Diff(want, s); diff != "" {
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
		{"part of another fault", head + "- fault: crash\n  delay: 1s\n", "s.yaml:5: events[0].delay: only the fault slow-api has this field"},
		{"runtime without effect", head + "- fault: runtime\n  runtime: {method: PullImage}\n", "s.yaml:4: events[0].fault: a fault of the runtime needs"},
		{"no delay", head + "- fault: slow-api\n", "events[0].fault: fault slow-api needs a delay"},
		{"no pressure", head + "- fault: pressure\n", "events[0].fault: pressure: set memory, disk or processes"},
		{"pressure over 100", head + "- fault: pressure\n  pressure: {disk: 101}\n", "events[0].fault: pressure: use 0 to 100"},
		{"bad pattern", head + "- fault: exit\n  exit: {pod: \"[\"}\n", "events[0].fault: exit.pod"},
		{"exit that lasts", head + "- fault: exit\n  for: 1s\n", "events[0].fault: fault exit happens once"},
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
