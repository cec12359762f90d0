package fleetctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/agent/fleet"
)

// write writes a file for an option and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Two runs in virtual time with the same seed write the same record, byte by byte. Another seed makes another one. The test is not parallel, because it
// changes the number of processors, as the command does.
func TestVirtualSameSeed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	scenario := write(t, "faults.yaml", `
apiVersion: wherry.dev/v1alpha1
kind: FleetScenario
events:
- {when: {podsRunning: 20}, after: 10s, every: 30s, jitter: 5s, times: 15, fault: exit, exit: {percent: 10, code: 3}}
- {after: 1m, every: 2m, times: 3, nodes: {count: 2}, fault: crash, for: 20s}
- {after: 2m, for: 4m, nodes: {percent: 50}, fault: runtime, runtime: {method: CreateContainer, error: down, chance: 0.5}}
- {after: 3m, for: 1m, fault: slow-api, delay: 300ms}
- {after: 5m, for: 1m, nodes: {count: 1}, fault: pressure, pressure: {memory: 99.9}}
`)
	dir := t.TempDir()
	run := func(name string, seed uint64) (path string, record []byte) {
		path = filepath.Join(dir, name)
		var result bytes.Buffer
		r := Run{Name: "f", Nodes: 8, Pods: 24, Namespace: "default", Seed: seed, Scenario: scenario, Record: path, Virtual: 8 * time.Minute, Result: &result}
		if err := r.Run(t.Context(), &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(result.String(), "time      8m0s of virtual time in ") {
			t.Errorf("the result is\n%s", &result)
		}
		record, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return path, record
	}
	a, first := run("a", 1)
	b, again := run("b", 1)
	if !bytes.Equal(first, again) {
		t.Errorf("the same seed: %s", cmp.Diff(strings.Split(string(first), "\n"), strings.Split(string(again), "\n")))
	}
	var said bytes.Buffer
	if err := (&Compare{States: true}).Run(&said, a, b); err != nil {
		t.Errorf("%v: %s", err, &said)
	}
	if _, other := run("c", 2); bytes.Equal(first, other) {
		t.Error("another seed makes the same record")
	}
	if lines := bytes.Count(first, []byte("\n")); lines < 100 {
		t.Errorf("the record has only %d lines", lines)
	}
}

// In an hour, a container that always fails restarts as often as the back-off of Kubernetes allows: at once, and then 10 s, 20 s, 40 s and so on
// after its end, at most 300 s.
func TestVirtualBackOff(t *testing.T) {
	t.Parallel()
	manifest := write(t, "crash.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: crash, annotations: {wherry.dev/sim-run-for: 1s, wherry.dev/sim-exit-code: "1"}}
spec: {containers: [{name: c, image: i}]}
`)
	var result bytes.Buffer
	r := Run{
		Name: "f", Nodes: 1, Namespace: "default", Manifests: []string{manifest}, Record: filepath.Join(t.TempDir(), "record"), Virtual: time.Hour,
		Expect: []string{"nodes=ready", "pods.running=1"}, Output: "json", Result: &result,
	}
	if err := r.Run(t.Context(), &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	var got Result
	if err := json.Unmarshal(result.Bytes(), &got); err != nil || !got.Held || got.TookSeconds != 3600 || got.Virtual == nil || got.Virtual.SpanSeconds != 3600 || got.Virtual.Speed < 2 {
		t.Errorf("%v: %s", err, &result)
	}
	text, err := os.ReadFile(r.Record)
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	var ended time.Duration
	restarts := int32(0)
	for line := range strings.Lines(string(text)) {
		var c fleet.Change
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		switch {
		case c.Pod == "":
		case c.Restarts > restarts:
			waits, restarts = append(waits, c.At-ended), c.Restarts
		case !c.Ready:
			ended = c.At
		}
	}
	want := []time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300, 300, 300, 300, 300, 300}
	for i := range want {
		want[i] = max(want[i]*time.Second, time.Second) // the first wait is counted from the start that came a second before, as both changes are one
	}
	if !slices.Equal(waits, want) {
		t.Errorf("the waits are %v", waits)
	}
}

// Expectations are checked at the end, or until the end of --within, which is virtual.
func TestVirtualExpectations(t *testing.T) {
	t.Parallel()
	run := func(r Run) (Result, error) {
		var result bytes.Buffer
		r.Name, r.Nodes, r.Namespace, r.Output, r.Result = "f", 2, "default", "json", &result
		err := r.Run(t.Context(), &bytes.Buffer{})
		var got Result
		if jsonErr := json.Unmarshal(result.Bytes(), &got); jsonErr != nil {
			t.Errorf("%v: %s", jsonErr, &result)
		}
		return got, err
	}
	var unmet *fleet.Unmet
	if got, err := run(Run{Virtual: time.Minute, Expect: []string{"nodes=ready", "pods=running"}}); !errors.As(err, &unmet) || got.Held || got.TookSeconds != 60 || !got.Expectations[0].Held {
		t.Errorf("at the end: %v: %+v", err, got)
	}
	if got, err := run(Run{Virtual: time.Minute, Within: 20 * time.Second, Expect: []string{"pods=running"}}); !errors.As(err, &unmet) || got.Virtual.SpanSeconds != 20 {
		t.Errorf("within 20 s: %v: %+v", err, got)
	}
	if got, err := run(Run{Virtual: time.Minute, Within: 20 * time.Second, Pods: 5}); err != nil || !got.Held || got.TookSeconds > 1 || got.Virtual.SpanSeconds != 60 || got.State.Pods.Running != 5 {
		t.Errorf("soon: %v: %+v", err, got)
	}
	if got, err := run(Run{Virtual: time.Minute, Pods: 3}); err != nil || !got.Held || len(got.Expectations) != 0 {
		t.Errorf("without expectations: %v: %+v", err, got)
	}
}

// A user who ends the command ends it soon, and gets what there is.
func TestVirtualInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	var result bytes.Buffer
	r := Run{Name: "f", Nodes: 2, Namespace: "default", Virtual: 100_000 * time.Hour, Result: &result}
	began := time.Now()
	if err := r.Run(ctx, &bytes.Buffer{}); err != nil || time.Since(began) > time.Minute || !strings.Contains(result.String(), "2 of 2 Ready") {
		t.Errorf("after %s: %v: %s", time.Since(began), err, &result)
	}
}

// Options that make no sense in virtual time are errors that say why, and so are problems that only the bubble finds.
func TestVirtualRefuses(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string][]string{
		"":                            {"virtual", "nodes"},
		"--manifest is for --virtual": {"manifest"},
		"--kubeconfig cannot be used with --virtual: the nodes join an API server in memory": {"virtual", "kubeconfig"},
		"--shard cannot be used with --virtual: no other process":                            {"virtual", "shard"},
		"--metrics cannot be used with --virtual: nobody can ask":                            {"virtual", "socket", "metrics"},
	} {
		r := Run{Virtual: time.Hour}
		err := r.CheckVirtual(func(flag string) bool { return slices.Contains(flags, flag) })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", flags, err)
		}
	}
	all := func(string) bool { return true }
	if err := (&Run{Within: time.Minute}).CheckVirtual(all); err == nil || !strings.Contains(err.Error(), "--virtual=0s: use a positive time") ||
		!strings.Contains(err.Error(), "--within=1m0s is longer") {
		t.Error(err)
	}
	r := Run{Name: "f", Nodes: 1, Pods: 1, Namespace: "none", Virtual: time.Minute}
	if err := r.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), `namespaces "none" not found`) {
		t.Errorf("an unknown namespace: %v", err)
	}
}
