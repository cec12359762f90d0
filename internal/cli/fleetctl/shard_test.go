package fleetctl

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/fleet"
)

// Two processes share a fleet: each shows its own nodes and both processes, and the number of nodes is changed for both. Nodes stay when they
// end, and clean removes them.
func TestTwoShards(t *testing.T) {
	t.Parallel()
	kube, kubeconfig := cluster(t)
	dir := t.TempDir()
	client := func(shard string) *Client { return &Client{Name: "f", Socket: filepath.Join(dir, shard)} }
	ended := make(chan error, 2)
	begin := func(shard string) {
		r := Run{
			Name: "f", Nodes: 12, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Shard: shard, ShardNamespace: "default",
			Socket: filepath.Join(dir, shard),
		}
		go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
	}
	settled := func(nodes int, shards ...string) func() bool {
		return func() bool {
			total := 0
			for _, shard := range shards {
				s, err := client(shard).State(t.Context())
				if err != nil || !s.Settled() || len(s.Shard.Shards) != len(shards) {
					return false
				}
				total += s.Nodes.Ready
			}
			return total == nodes
		}
	}
	begin("a")
	begin("b")
	until(t, "two shards run 12 nodes", settled(12, "a", "b"))
	var out bytes.Buffer
	if err := (&Get{Client: *client("a")}).Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"shard     a: 8 of 16 slices; the whole fleet has 12 nodes\n", "  a       8 slices with ", "(this one)\n", "  b       8 slices with "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
	if _, err := client("b").Scale(t.Context(), "", 8); err != nil {
		t.Fatal(err)
	}
	until(t, "8 nodes", func() bool { return nodesOf(t, kube) == 8 && settled(8, "a", "b")() })
	clean := Clean{Name: "f", Kubeconfig: kubeconfig, ShardNamespace: "default"}
	if err := clean.Run(t.Context(), &out, &out); err == nil || !strings.Contains(err.Error(), "the fleet f runs: ") {
		t.Errorf("clean a fleet that runs: %v", err)
	}
	for _, step := range [][2]string{{"a", "the shard a of the fleet f has ended; the others take its nodes\n"}, {"b", "the shard b of the fleet f has ended; its nodes stay in the cluster"}} {
		shard, want := step[0], step[1]
		if shard == "b" {
			until(t, "b has seen that a has ended", settled(8, "b"))
		}
		out.Reset()
		if err := (&Stop{*client(shard)}).Run(t.Context(), &out); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("stop of shard %s: %q, %v; want %q", shard, &out, err, want)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := nodesOf(t, kube); n != 8 {
		t.Errorf("%d nodes after the end of all shards", n)
	}
	clean.Force, clean.ShardNamespace = true, "" // otherwise it looks at the leases of the nodes for 15 s; the leases of the fleet are found in any namespace
	if err := clean.Run(t.Context(), &out, &out); err != nil || nodesOf(t, kube) != 0 {
		t.Errorf("clean: %v, %d nodes", err, nodesOf(t, kube))
	}
	api, err := kubernetes.NewForConfig(kube.RESTConfig("test"))
	if err != nil {
		t.Fatal(err)
	}
	if left, err := api.CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Errorf("clean has left leases: %v, %v", left, err)
	}
}

// Options that do not fit a shard are errors before anything starts.
func TestErrorsOfShards(t *testing.T) {
	t.Parallel()
	_, kubeconfig := cluster(t)
	for want, r := range map[string]Run{
		"--shard needs a cluster":            {Shard: "a"},
		"--shard-namespace needs --shard":    {ShardNamespace: "default"},
		"--pods with --shard":                {Shard: "a", Kubeconfig: kubeconfig, Pods: 5},
		"--snapshot with --shard":            {Shard: "a", Kubeconfig: kubeconfig, Snapshot: "x"},
		"name two clusters":                  {InCluster: true, Kubeconfig: kubeconfig},
		"it needs --kubeconfig":              {InCluster: true, Context: "c"},
		"--in-cluster: ":                     {InCluster: true, Yes: true},
		`--shard: "A b"`:                     {Shard: "A b", Kubeconfig: kubeconfig, Yes: true},
		`--shard-namespace: "a.b"`:           {Shard: "a", ShardNamespace: "a.b", Kubeconfig: kubeconfig, Yes: true},
		"repeat the command with --yes":      {Shard: "a", Kubeconfig: kubeconfig},
		"in namespace kube-none: namespaces": {Shard: "a", ShardNamespace: "kube-none", Kubeconfig: kubeconfig, Yes: true},
	} {
		r.Name, r.Identity, r.NoServe, r.Socket = "f", "shared", true, filepath.Join(t.TempDir(), "s")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := r.Run(ctx, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		cancel()
	}
}

// The name that a shard chooses is valid and differs from any other; its socket has its name.
func TestNamesOfShards(t *testing.T) {
	t.Parallel()
	one, other := autoShard(), autoShard()
	if one == other || len(one) > 40 {
		t.Errorf("%s, %s", one, other)
	}
	if _, err := fleet.New(fleet.Config{Name: "f", Shard: fleet.Shard{Name: one}}); err == nil || strings.Contains(err.Error(), "Config.Shard") {
		t.Errorf("the name %s: %v", one, err) // the error is about a field that is missing here
	}
	if got := filepath.Base(socketPath("", "f", "a")); got != "fleet-f.a.sock" {
		t.Error(got)
	}
	if got := socketPath("/x", "f", "a"); got != "/x" {
		t.Error(got)
	}
}

// Shards compare the content of their files of rules, not the names.
func TestSumOfRules(t *testing.T) {
	t.Parallel()
	if rules, sum, err := readRules(nil); rules != nil || sum != "" || err != nil {
		t.Errorf("without files: %v %q %v", rules, sum, err)
	}
	sumOf := func(file, ready string) string {
		path := filepath.Join(t.TempDir(), file)
		text := "apiVersion: wherry.dev/v1alpha1\nkind: SimulationRules\ncontainers:\n- do: {readyAfter: " + ready + "}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, sum, err := readRules([]string{path})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if sumOf("a", "1s") != sumOf("b", "1s") || sumOf("a", "1s") == sumOf("a", "2s") {
		t.Error("the sum does not follow from the content")
	}
}
