package fleetctl

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// A command that gets a wrong value in a flag names the flag, not the field that the flag sets, and says so before it looks for a fleet.
func TestErrorsNameFlags(t *testing.T) {
	t.Parallel()
	all := fleet.Selector{All: true}
	for _, c := range []struct {
		nodes fleet.Selector
		fault fleet.Fault
		want  string
	}{
		{all, fleet.Fault{Kind: fleet.FaultExit, Exit: fleet.Exit{Pod: "["}}, `--pod: "[" is no pattern: use *`},
		{all, fleet.Fault{Kind: fleet.FaultExit, Exit: fleet.Exit{Namespace: "a\\"}}, `--pod-namespace: "a\\" is no pattern`},
		{all, fleet.Fault{Kind: fleet.FaultExit, Exit: fleet.Exit{Code: 256}}, "--exit-code: 256: use 0 to 255"},
		{all, fleet.Fault{Kind: fleet.FaultExit, Exit: fleet.Exit{Code: 1, OOM: true}}, "--oom: it sets code and reason itself"},
		{all, fleet.Fault{Kind: fleet.FaultExit, For: time.Second}, "--for: fault exit happens once"},
		{all, fleet.Fault{Kind: fleet.FaultCrash, For: -time.Second}, "--for: -1s: a fault cannot last for a negative time"},
		{all, fleet.Fault{Kind: fleet.FaultSlowAPI}, "--delay: fault slow-api needs a delay"},
		{all, fleet.Fault{Kind: fleet.FaultRuntime, Runtime: simulated.Fault{Hang: true, Chance: 2}}, "--chance: use a number from 0 to 1"},
		{all, fleet.Fault{Kind: fleet.FaultPressure, Pressure: simulated.Pressure{Disk: 101}}, "--disk: use 0 to 100 percent"},
		{all, fleet.Fault{Kind: fleet.FaultPressure}, "pressure: set memory, disk or processes, in percent"}, // no single flag is wrong
		{all, fleet.Fault{Kind: fleet.FaultDevices}, "--resource: name the resource of the devices"},
		{all, fleet.Fault{Kind: fleet.FaultClock, Clock: fleet.Skew{Drift: time.Hour}}, "--drift: 1h0m0s: a clock gains or loses at most 30m0s in an hour"},
		{all, fleet.Fault{Kind: "melt"}, `fault "melt": use one of crash`},
		{fleet.Selector{Labels: "a in", All: true}, fleet.Fault{Kind: fleet.FaultCrash}, `--selector: label selector "a in": `},
		{fleet.Selector{Percent: 101}, fleet.Fault{Kind: fleet.FaultCrash}, "--percent: 101: choose at most 100 percent of the nodes"},
		{fleet.Selector{Count: -1}, fleet.Fault{Kind: fleet.FaultCrash}, "--count: -1: choose a positive number of nodes"},
		{fleet.Selector{Count: 1, Percent: 1}, fleet.Fault{Kind: fleet.FaultCrash}, "choose the nodes in one way"},
	} {
		f := Fault{Client: Client{Socket: filepath.Join(t.TempDir(), "none")}, Nodes: c.nodes, Fault: c.fault}
		if err := f.Run(t.Context(), nil); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v of %+v: %v, want %s", c.fault, c.nodes, err, c.want)
		}
	}
	heal := Fault{Heal: true, Client: Client{Socket: filepath.Join(t.TempDir(), "none")}, Nodes: fleet.Selector{Labels: "a in"}}
	if err := heal.Run(t.Context(), nil); err == nil || !strings.HasPrefix(err.Error(), "--selector: ") {
		t.Errorf("heal: %v", err)
	}
	for _, c := range []struct {
		run  Run
		want string
	}{
		{Run{Name: "A b"}, `--name: "A b": the name of a fleet has`},
		{Run{Name: "f", Identity: "x"}, `--identity: "x": use impersonate`},
		{Run{Name: "f", Shard: "A b"}, `--shard: "A b": `},
		{Run{Name: "f", Shard: "a", ShardNamespace: "A b"}, `--shard-namespace: "A b": `},
		{Run{Name: "f", Shard: "a", Identity: "certificate", Kubeconfig: "x"}, "--identity: processes that share a fleet cannot give its nodes certificates: use impersonate, shared, or one process"},
		{Run{Name: "f", Shard: "a", Storage: true, Kubeconfig: "x"}, "--storage: of processes that share a fleet"},
		{Run{Name: "f"}, "fleet: Config.Groups[0].count: -1: use 0 to "}, // of no flag
	} {
		in := &input{groups: []fleet.Group{{Count: 1}}}
		if strings.HasPrefix(c.want, "fleet:") {
			in.groups[0].Count = -1
		}
		if _, err := c.run.config(in); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.run, err, c.want)
		}
	}
}

// A scenario that cannot be read says what kind of file to give.
func TestScenarioThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "none.yaml")
	_, planErr := readScenario(file)
	for name, err := range map[string]error{
		file: (&Apply{Client{Socket: filepath.Join(dir, "none")}}).Run(t.Context(), nil, file), "--scenario": planErr,
		"a directory": (&Apply{Client{Socket: filepath.Join(dir, "none")}}).Run(t.Context(), nil, dir),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "read the scenario: ") || !strings.HasSuffix(err.Error(), ": give a file of the kind FleetScenario, as docs/fleet.md describes it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
