package fleetctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/agent/fleet"
)

// The commands read and change a running fleet.
func TestCommands(t *testing.T) {
	t.Parallel()
	kube, kubeconfig := cluster(t)
	r := Run{Name: "f", Nodes: 3, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s")}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
	c := Client{Name: "f", Socket: r.Socket}
	until(t, "3 nodes Ready", func() bool {
		s, err := c.State(t.Context())
		return err == nil && s.Settled() && s.Nodes.Ready == 3
	})
	say := func(run func(out *bytes.Buffer) error) string {
		t.Helper()
		var out bytes.Buffer
		if err := run(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	scaled := say(func(out *bytes.Buffer) error {
		return (&Scale{Client: c, Wait: time.Minute}).Run(t.Context(), out, io.Discard, "4")
	})
	if scaled != "4 of 4 nodes Ready\n" {
		t.Errorf("scale said %q", scaled)
	}
	crash := fleet.Fault{Kind: fleet.FaultCrash}
	if said := say(func(out *bytes.Buffer) error {
		return (&Fault{Client: c, Nodes: fleet.Selector{Names: []string{"f-node-2"}}, Fault: crash}).Run(t.Context(), out)
	}); said != "crash: f-node-2\n" {
		t.Errorf("fault said %q", said)
	}
	if err := (&Fault{Client: c, Nodes: fleet.Selector{Names: []string{"x"}}, Fault: crash}).Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("a fault of an unknown node: %v", err)
	}
	if w, err := c.Watch(t.Context(), 5); err != nil || w.AttentionAll != 1 || len(w.Attention) != 1 || w.Attention[0].Name != "f-node-2" || w.Goroutines == 0 || w.Joins.Ended != 4 {
		t.Errorf("watch: %+v, %v", w, err)
	}
	if _, err := c.Watch(t.Context(), -1); err == nil || !strings.Contains(err.Error(), "use a number from 0") {
		t.Errorf("watch -1 nodes: %v", err)
	}
	text := say(func(out *bytes.Buffer) error { return (&Get{Client: c, Nodes: true}).Run(t.Context(), out) })
	for _, want := range []string{"nodes     4 of 4 Ready: 1 crashed\n", "f-node-2   node    crashed", "export KUBECONFIG=" + kubeconfig} {
		if !strings.Contains(text, want) {
			t.Errorf("get does not say %q:\n%s", want, text)
		}
	}
	if said := say(func(out *bytes.Buffer) error {
		return (&Fault{Client: c, Nodes: fleet.Selector{All: true}, Heal: true}).Run(t.Context(), out)
	}); said != "healed: f-node-1 f-node-2 f-node-3 f-node-4\n" {
		t.Errorf("heal said %q", said)
	}
	var state State
	asJSON := say(func(out *bytes.Buffer) error { return (&Get{Client: c, Output: "json"}).Run(t.Context(), out) })
	if err := json.Unmarshal([]byte(asJSON), &state); err != nil || state.Nodes.Want != 4 || state.Goroutines == 0 || state.Memory == 0 {
		t.Errorf("%v: %s", err, asJSON)
	}
	top := say(func(out *bytes.Buffer) error {
		return (&Top{Client: c, Every: 100 * time.Millisecond, Count: 2}).Run(t.Context(), out)
	})
	if strings.Count(top, "nodes [########################################] 4/4") != 2 || strings.Count(top, "cores now") != 1 || strings.Count(top, "requests a second now") != 1 {
		t.Errorf("top said\n%s", top)
	}
	if said := say(func(out *bytes.Buffer) error { return (&Stop{c}).Run(t.Context(), out) }); said != "the fleet f has ended\n" {
		t.Errorf("stop said %q", said)
	}
	if n := nodesOf(t, kube); n != 0 {
		t.Errorf("stop returned while %d nodes were left", n)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A group alone chooses all its nodes, for a fault and for its end. Without any choice the command is refused. A scaling that takes longer than its
// time says that the fleet goes on.
func TestFaultOfAGroup(t *testing.T) {
	t.Parallel()
	_, kubeconfig := cluster(t)
	template := filepath.Join(t.TempDir(), "template.yaml")
	text := "apiVersion: wherry.dev/v1alpha1\nkind: FleetTemplate\ngroups: [{name: a, count: 2}, {name: b, count: 2}]\n"
	if err := os.WriteFile(template, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Run{Name: "f", Template: template, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s")}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
	c := Client{Name: "f", Socket: r.Socket}
	until(t, "4 nodes Ready", func() bool {
		s, err := c.State(t.Context())
		return err == nil && s.Settled()
	})
	for _, step := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Nodes: fleet.Selector{Group: "b"}, Fault: fleet.Fault{Kind: fleet.FaultLease}}, "lease: f-b-1 f-b-2\n"},
		{Fault{Nodes: fleet.Selector{Group: "b"}, Heal: true}, "healed: f-b-1 f-b-2\n"},
		{Fault{Nodes: fleet.Selector{Group: "b", Count: 1}, Fault: fleet.Fault{Kind: fleet.FaultLease}}, "lease: f-b-"},
		{Fault{Fault: fleet.Fault{Kind: fleet.FaultLease}}, "name the nodes, or choose them with --count, --percent, --group, --selector or --all"},
	} {
		var out bytes.Buffer
		step.fault.Client = c
		if err := step.fault.Run(t.Context(), &out); err != nil {
			out.WriteString(err.Error())
		}
		if said := out.String(); !strings.Contains(said, step.want) || strings.Contains(said, "f-b-1 f-b-2") && step.fault.Nodes.Count == 1 {
			t.Errorf("%+v said %q, want %q", step.fault.Nodes, said, step.want)
		}
	}
	scale := Scale{Client: c, Group: "a", Wait: time.Nanosecond}
	if err := scale.Run(t.Context(), io.Discard, io.Discard, "3"); err == nil || !strings.Contains(err.Error(), "of 5 nodes are Ready") || !strings.Contains(err.Error(), "the fleet goes on") {
		t.Errorf("scale without time to wait: %v", err)
	}
	if _, err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// writeState prints the texts of a fleet, for example the server's address, without control characters.
func TestStateIsPlain(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	const hostile = "x\x1b[2J"
	writeState(&out, &State{Status: fleet.Status{Name: hostile, Groups: []fleet.GroupStatus{{Name: hostile}, {}}}, Server: hostile, Kubeconfig: hostile})
	out.WriteString(listed([]string{hostile}) + happened(&fleet.Happening{Event: hostile, Err: hostile}) + outcomeText(&fleet.Outcome{Expect: hostile, Now: hostile}))
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}

func TestBars(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, whole int
		want        string
	}{
		{0, 0, ""},
		{5, -1, ""},
		{-5, 1, "pods  [........................................] -5/1\n"},
		{1 << 62, 1 << 62, fmt.Sprintf("pods  [########################################] %d/%[1]d\n", 1<<62)},
		{1, 4, "pods  [##########..............................] 1/4\n"},
		{9, 4, "pods  [########################################] 9/4\n"},
	} {
		if diff := cmp.Diff(c.want, bar("pods", c.part, c.whole)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestJoined(t *testing.T) {
	t.Parallel()
	before := fleet.Joins{Ended: 10, Took: 10 * time.Second, Waited: time.Second}
	after := fleet.Joins{Ended: 30, Took: 30 * time.Second, Waited: 13 * time.Second}
	for want, got := range map[string]string{
		"": joined(before, before, time.Second),
		", 4.0 a second; 60 % of a join waits for the API server": joined(before, after, 5*time.Second),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := joined(after, before, time.Second); got != "" { // another fleet
		t.Errorf("%q", got)
	}
}

// Wrong arguments are errors, and no request is sent.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	c := Client{Name: "f", Socket: filepath.Join(t.TempDir(), "s")}
	for want, err := range map[string]error{
		"is no number of nodes": (&Scale{Client: c}).Run(t.Context(), &bytes.Buffer{}, io.Discard, "many"),
		"--interval=1ms":        (&Top{Client: c, Every: time.Millisecond}).Run(t.Context(), &bytes.Buffer{}),
		"--output=":             (&Get{Client: c, Output: "xml"}).Run(t.Context(), &bytes.Buffer{}),
		"no fleet runs at":      (&Stop{c}).Run(t.Context(), &bytes.Buffer{}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A fleet plays the scenario with which it was started, and another one that Apply sends while the fleet runs. A scenario with an error is
// refused before any of its events happens, and before any node joins.
func TestScenarios(t *testing.T) {
	t.Parallel()
	kube, kubeconfig := cluster(t)
	const head = "apiVersion: wherry.dev/v1alpha1\nkind: FleetScenario\nevents:\n"
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "scenario.yaml")
		if err := os.WriteFile(path, []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r := Run{Name: "f", Nodes: 3, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s")}
	for text, want := range map[string]string{
		"- fault: fire\n":                              `scenario.yaml:4: events[0].fault: fault "fire"`,
		"- {fault: crash, nodes: {group: big}}\n":      `events[0].nodes.group: "big": no such group`,
		"- {fault: crash, nodes: {percent: 1000}}\n":   "scenario.yaml:4: events[0].nodes.percent: 1000: choose at most 100 percent",
		"- {fault: crash, times: 2, every: forever}\n": "scenario.yaml:4: events[0].every",
	} {
		bad := r
		bad.Scenario = write(text)
		if err := bad.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if n := nodesOf(t, kube); n != 0 {
		t.Errorf("%d nodes joined", n)
	}
	r.Scenario = write("- {name: first, fault: crash, when: {nodesReady: 3}, nodes: {names: [f-node-2]}}\n")
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
	c := Client{Name: "f", Socket: r.Socket}
	crashed := func(n int) func() bool {
		return func() bool {
			s, err := c.State(t.Context())
			return err == nil && s.Nodes.Crashed == n
		}
	}
	until(t, "one node has crashed", crashed(1))
	var out bytes.Buffer
	if err := (&Apply{c}).Run(t.Context(), &out, write("- {fault: crash, nodes: {names: [f-node-1]}}\n- {fault: crash, nodes: {names: [f-node-3]}}\n")); err != nil || out.String() != "the scenario has begun: 2 events\n" {
		t.Errorf("apply said %q: %v", out.String(), err)
	}
	until(t, "all nodes have crashed", crashed(3))
	if err := (&Apply{c}).Run(t.Context(), &out, write("- {fault: crash, nodes: {group: big}}\n")); err == nil || !strings.Contains(err.Error(), "no such group") {
		t.Errorf("apply of a wrong scenario: %v", err)
	}
	if _, err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
