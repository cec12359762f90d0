package fleetctl

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// cluster starts an API server in memory that listens on the network, and writes a kubeconfig for it.
func cluster(t *testing.T) (kube *simkube.Kube, kubeconfig string) {
	t.Helper()
	kube = simkube.New(simkube.Config{})
	s := httptest.NewTLSServer(kube)
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %s, certificate-authority-data: %s}}], users: [{name: u, user: {token: t}}]}`, s.URL, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kube, kubeconfig
}

func nodesOf(t *testing.T, kube *simkube.Kube) int {
	t.Helper()
	c, err := kubernetes.NewForConfig(kube.RESTConfig("test"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(l.Items)
}

// until waits until a condition holds.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatal("not after a minute: " + what)
}

// A fleet joins a cluster over the network, answers on its socket, grows, and leaves nothing behind after wherry fleet stop.
func TestFleetOverItsSocket(t *testing.T) {
	t.Parallel()
	kube, kubeconfig := cluster(t)
	r := Run{Name: "f", Nodes: 3, Kubeconfig: kubeconfig, Yes: true, Identity: "impersonate", NoServe: true, Namespace: "default", Socket: filepath.Join(t.TempDir(), "s")}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
	c := Client{Name: "f", Socket: r.Socket}
	until(t, "3 nodes Ready", func() bool {
		s, err := c.State(t.Context())
		return err == nil && s.Settled() && s.Nodes.Ready == 3
	})
	again := r
	if err := again.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "a fleet f runs already on this machine") {
		t.Errorf("a second fleet on the socket: %v", err)
	}
	if _, err := c.Scale(t.Context(), "", 5); err != nil {
		t.Fatal(err)
	}
	until(t, "5 nodes Ready", func() bool {
		s, err := c.State(t.Context())
		return err == nil && s.Settled() && s.Nodes.Ready == 5
	})
	nodes, err := c.Nodes(t.Context())
	if err != nil || len(nodes) != 5 || nodes[4].Name != "f-node-5" || nodes[4].State != "ready" {
		t.Errorf("nodes: %+v, %v", nodes, err)
	}
	if _, err := c.Scale(t.Context(), "other", 5); err == nil || !strings.Contains(err.Error(), "no such group") {
		t.Errorf("an unknown group: %v", err)
	}
	if _, err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := nodesOf(t, kube); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
	if _, err := c.State(t.Context()); err == nil || !strings.Contains(err.Error(), "no fleet runs") {
		t.Errorf("after the end: %v", err)
	}
}

// With Once and Within the command fails unless all nodes are Ready and all pods Running in time.
func TestOnceWithin(t *testing.T) {
	t.Parallel()
	_, kubeconfig := cluster(t)
	r := Run{Name: "f", Nodes: 2, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Namespace: "default", Once: true, Within: time.Minute, Socket: filepath.Join(t.TempDir(), "s")}
	var out bytes.Buffer
	if err := r.Run(t.Context(), &out); err != nil || !strings.Contains(out.String(), "2 nodes Ready in ") {
		t.Errorf("said %q: %v", out.String(), err)
	}
	r.Pods, r.Within = 5, 3*time.Second // there is no scheduler, so no pod gets a node
	if err := r.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "not as expected: pods.running>=5 (now: 0)") {
		t.Errorf("too late: %v", err)
	}
}

// If the user gives expectations, the command fails (fleet.Unmet) unless they hold in time. It prints their outcome as JSON.
func TestExpect(t *testing.T) {
	t.Parallel()
	_, kubeconfig := cluster(t)
	run := func(within time.Duration, expect ...string) (Result, error) {
		var result bytes.Buffer
		r := Run{
			Name: "f", Nodes: 2, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Namespace: "default", Once: true, Within: within,
			Socket: filepath.Join(t.TempDir(), "s"), Expect: expect, Output: "json", Result: &result,
		}
		err := r.Run(t.Context(), &bytes.Buffer{})
		var out Result
		if jsonErr := json.Unmarshal(result.Bytes(), &out); jsonErr != nil {
			t.Errorf("%v: %s", jsonErr, &result)
		}
		return out, err
	}
	out, err := run(time.Minute, "nodes=ready", "leases.failed=0")
	if err != nil || !out.Held || len(out.Expectations) != 2 || out.Expectations[0].Now != "2 of 2" || out.State.Nodes.Ready != 2 {
		t.Errorf("%v: %+v", err, out)
	}
	for within := 2 * time.Second; within < time.Minute; within *= 3 { // on a busy machine the nodes need longer to be Ready
		if out, err = run(within, "nodes=ready", "pods=running"); len(out.Expectations) == 2 && out.Expectations[0].Held {
			break
		}
	}
	var unmet *fleet.Unmet
	if !errors.As(err, &unmet) || out.Held || !out.Expectations[0].Held || out.Expectations[1].Held {
		t.Errorf("without pods: %v: %+v", err, out)
	}
}

// `wherry fleet expect` waits for expectations of a running fleet, and prints the outcome as text or JSON. It fails (fleet.Unmet) if they
// do not hold in time.
func TestExpectOfARunningFleet(t *testing.T) {
	t.Parallel()
	_, kubeconfig := cluster(t)
	r := Run{Name: "f", Nodes: 2, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s")}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
	c := Client{Name: "f", Socket: r.Socket}
	until(t, "the fleet listens", func() bool {
		_, err := c.State(t.Context())
		return err == nil
	})
	expect := func(within time.Duration, output string, texts ...string) (string, error) {
		var out bytes.Buffer
		err := (&Expect{Client: c, Texts: texts, Within: within, Output: output}).Run(t.Context(), &out)
		return out.String(), err
	}
	if said, err := expect(time.Minute, "", "nodes=ready"); err != nil || said != "nodes=ready: holds (2 of 2)\n" {
		t.Errorf("%q, %v", said, err)
	}
	said, err := expect(500*time.Millisecond, "json", "nodes.ready>2")
	var unmet *fleet.Unmet
	if !errors.As(err, &unmet) || !strings.Contains(said, `"held": false`) || !strings.Contains(said, `"now": "2"`) {
		t.Errorf("%s, %v", said, err)
	}
	if _, err := expect(time.Minute, "", "nodes=red"); err == nil || errors.As(err, &unmet) {
		t.Errorf("a wrong expectation: %v", err)
	}
	if _, err := expect(time.Minute, "xml", "nodes=ready"); err == nil {
		t.Error("a wrong output is no error")
	}
	if _, err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Wrong options are errors before anything starts.
func TestErrorsBeforeTheStart(t *testing.T) {
	t.Parallel()
	kube, kubeconfig := cluster(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: wherry.dev/v1alpha1\nkind: FleetTemplate\n"
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bad := write("bad.yaml", head+"groups:\n- cpus: many\n")
	two := write("two.yaml", head+"groups: [{name: a, count: 1}, {name: b, count: 1}]\n")
	for _, c := range []struct {
		name string
		run  Run
		want string
	}{
		{"not asked", Run{Name: "f", Nodes: 7, Kubeconfig: kubeconfig}, "adds 7 simulated nodes to the cluster at https://"},
		{"template", Run{Name: "f", Template: bad}, bad + ":4: groups[0].cpus: expected a whole number"},
		{"no template", Run{Name: "f", Template: dir + "/none"}, "--template: open"},
		{"nodes of which group", Run{Name: "f", Template: two, Nodes: 5}, "two.yaml has 2 groups"},
		{"negative", Run{Name: "f", Nodes: -5}, "--nodes=-5"},
		{"name", Run{Name: "../f"}, `--name: "../f": `},
		{"identity", Run{Name: "f", Identity: "me"}, `--identity: "me": `},
		{"metrics", Run{Name: "f", Metrics: "nope", ControlPlane: dir + "/none"}, `--metrics: listen tcp: address nope: missing port`},
		{"metrics of others", Run{Name: "f", Metrics: taken.Addr().String(), ControlPlane: dir + "/none"}, "--metrics: listen tcp 127.0.0.1:"},
		{"control plane", Run{Name: "f", ControlPlane: dir + "/none"}, "--controlplane: stat"},
		{"rules", Run{Name: "f", Rules: []string{write("rules.yaml", "apiVersion: wherry.dev/v1alpha1\nkind: SimulationRules\ncontainers:\n- do: {exits: [{code: -1}]}\n")}}, "rules.yaml:4: containers[0].do.exits[0].code"},
		{"no rules", Run{Name: "f", Rules: []string{dir + "/none"}}, "--rules: open"},
		{"expectation", Run{Name: "f", Expect: []string{"pods=happy"}}, `expectation "pods=happy": use one of`},
		{"output", Run{Name: "f", Output: "xml"}, "--output="},
		{"hold", Run{Name: "f", Hold: -1}, "--hold="},
		{"kubeconfig", Run{Name: "f", Kubeconfig: dir + "/none", Yes: true}, "--kubeconfig: "},
		{"namespace", Run{Name: "f", Pods: 1, Namespace: "none", Kubeconfig: kubeconfig, Yes: true, NoServe: true}, `--namespace: the cluster has no namespace "none"`},
		{"no namespace at all", Run{Name: "f", Pods: 1, Namespace: "No_name"}, `--namespace="No_name": `},
		{"a copy in a cluster", Run{Name: "f", Snapshot: dir + "/none", Kubeconfig: kubeconfig, Yes: true}, "it needs a control plane of its own"},
		{"a copy in the cluster of the pod", Run{Name: "f", Snapshot: dir + "/none", InCluster: true, Yes: true}, "it needs a control plane of its own"},
	} {
		c.run.Socket = filepath.Join(t.TempDir(), "s")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := c.run.Run(ctx, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		cancel()
	}
	if n := nodesOf(t, kube); n != 0 {
		t.Errorf("%d nodes joined", n)
	}
	if err := (&Clean{Name: "f"}).Run(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("clean without a cluster: %v", err)
	}
}

// A fleet that was killed leaves its nodes, and clean removes them. It removes nothing of a fleet that runs, whether it is named or not.
func TestClean(t *testing.T) {
	t.Parallel()
	kube, kubeconfig := cluster(t)
	r := Run{Name: "f", Nodes: 2, Kubeconfig: kubeconfig, Yes: true, Keep: true, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s")}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
	client := Client{Name: "f", Socket: r.Socket}
	until(t, "2 nodes Ready", func() bool {
		s, err := client.State(t.Context())
		return err == nil && s.Settled()
	})
	var out bytes.Buffer
	clean := func(c Clean) error {
		out.Reset()
		c.Kubeconfig = kubeconfig
		return c.Run(t.Context(), &out, &out)
	}
	for _, c := range []Clean{{Name: "f"}, {Name: "other", All: true}} {
		if err := clean(c); err == nil || !strings.Contains(err.Error(), "the fleet f runs: node f-node-") || !strings.Contains(err.Error(), "--force") || nodesOf(t, kube) != 2 {
			t.Errorf("clean a fleet that runs: %v, %d nodes", err, nodesOf(t, kube))
		}
	}
	if err := clean(Clean{Name: "other"}); err != nil || nodesOf(t, kube) != 2 {
		t.Errorf("clean another fleet: %v, %s", err, &out)
	}
	if _, err := client.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil || nodesOf(t, kube) != 2 {
		t.Fatalf("with Keep: %v, %d nodes", err, nodesOf(t, kube))
	}
	if err := clean(Clean{Name: "other", All: true, Force: true}); err != nil || nodesOf(t, kube) != 0 || !strings.Contains(out.String(), "2 nodes, 0 pods") {
		t.Errorf("clean: %v, %s", err, &out)
	}
}
