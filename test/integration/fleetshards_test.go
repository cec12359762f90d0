package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// shardedPods are the pods of the shared fleet. They need no token, because the manifests of a fleet grant none.
const shardedPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 30
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      nodeSelector: {wherry.dev/fleet: big}
      tolerations: [{key: wherry.dev/simulated, operator: Exists}]
      containers: [{name: web, image: registry.example/web:1}]
`

// Three processes share 30 nodes with the rights of deploy/fleet/rbac.yaml. One is killed: all nodes stay Ready, and the others run its nodes. One
// joins, and gets its share. When all have ended, wherry fleet clean removes the nodes.
func TestFleetOfSeveralProcesses(t *testing.T) {
	main := use(t)
	e := newPlane(t, main, "shards")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		stdout, err := e.runKubectl(e.kubeconfig(), stdin, args...)
		must(err)
		return stdout
	}
	kubectl("", "apply", "-f", filepath.Join("..", "..", "deploy", "fleet", "rbac.yaml"))
	kubeconfig := filepath.Join(e.dir, "fleet.kubeconfig")
	must(writeTokenKubeconfig(e, kubeconfig, strings.TrimSpace(kubectl("", "-n", "wherry-fleet", "create", "token", "fleet"))))

	shards := map[string]*process{}
	t.Cleanup(func() {
		for _, p := range shards {
			p.stop()
		}
	})
	socket := func(name string) string { return filepath.Join(e.dir, name+".sock") }
	begin := func(name string) {
		t.Helper()
		var err error
		shards[name], err = start(filepath.Join(e.dir, "fleet-"+name+".log"), e.wherry, "fleet", "--name", "big", "--nodes", "30", "--kubeconfig", kubeconfig, "--yes",
			"--shard", name, "--shard-namespace", "wherry-fleet", "--identity", "shared", "--no-serve", "--v", "2", "--socket", socket(name))
		must(err)
	}
	// settled waits until these shards have all nodes between them.
	settled := func(names ...string) {
		t.Helper()
		must(wait(2*time.Minute, func() error {
			total := 0
			for _, name := range names {
				if err := shards[name].alive(); err != nil {
					return fatal{err}
				}
				stdout, stderr, err := output(command(e.wherry, "fleet", "get", "--socket", socket(name), "-o", "json"))
				if err != nil {
					return errorf("wherry fleet get: %v: %s", err, stderr)
				}
				var s struct {
					Nodes struct{ Ready int }
					Shard struct {
						Settled bool
						Shards  []struct{ Name string }
					}
				}
				if err := json.Unmarshal([]byte(stdout), &s); err != nil {
					return fatal{err}
				}
				if !s.Shard.Settled || len(s.Shard.Shards) != len(names) {
					return errorf("shard %s: %+v", name, s)
				}
				total += s.Nodes.Ready
			}
			if total != 30 {
				return errorf("the shards run %d nodes", total)
			}
			return nil
		}))
	}
	for _, name := range []string{"s0", "s1", "s2"} {
		begin(name)
	}
	settled("s0", "s1", "s2")
	kubectl(shardedPods, "apply", "-f", "-")
	must(wait(2*time.Minute, func() error { return e.podsRun(30) }))

	must(shards["s1"].cmd.Process.Kill())
	killed := time.Now()
	for time.Since(killed) < 75*time.Second { // longer than the 50 s after which the cluster considers a silent node as gone
		must(e.nodesReady(30))
		time.Sleep(500 * time.Millisecond)
	}
	settled("s0", "s2")
	must(wait(time.Minute, func() error { return e.podsRun(30) }))
	begin("s3")
	settled("s0", "s2", "s3")
	must(e.nodesReady(30))

	text, _, err := output(command(e.wherry, "fleet", "get", "--socket", socket("s0")))
	must(err)
	for _, want := range []string{"shard     s0: ", "the whole fleet has 30 nodes", "  s2 ", "  s3 "} {
		if !strings.Contains(text, want) {
			t.Errorf("wherry fleet get has no %q:\n%s", want, text)
		}
	}
	clean := func() (string, error) {
		stdout, stderr, err := e.runWherry("fleet", "clean", "--name", "big", "--shard-namespace", "wherry-fleet")
		return stdout + stderr, err
	}
	if said, err := clean(); err == nil || !strings.Contains(said, "the fleet big runs") {
		t.Errorf("clean a fleet that runs: %v: %s", err, said)
	}
	for name, p := range shards {
		p.stop()
		log, err := os.ReadFile(p.log)
		must(err)
		if strings.Contains(string(log), "forbidden") {
			t.Errorf("shard %s may not do all that it needs:\n%s", name, log)
		}
	}
	if said, err := clean(); err != nil || !strings.Contains(said, "30 nodes, 30 pods") {
		t.Errorf("clean: %v: %s", err, said)
	}
	leases, err := e.client.CoordinationV1().Leases("wherry-fleet").List(t.Context(), metav1.ListOptions{})
	must(err)
	if len(leases.Items) != 0 {
		t.Errorf("%d leases are left", len(leases.Items))
	}
}

// writeTokenKubeconfig writes a kubeconfig for a user with a token.
func writeTokenKubeconfig(e *env, path, token string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: e.config.Host, CertificateAuthorityData: e.config.CAData, CertificateAuthority: e.config.CAFile}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "c"
	return clientcmd.WriteToFile(*c, path)
}

// nodesReady returns an error that ends a wait unless the cluster has count nodes and all are Ready.
func (e *env) nodesReady(count int) error {
	list, err := e.client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{LabelSelector: "wherry.dev/fleet"})
	if err != nil {
		return err
	}
	if len(list.Items) != count {
		return fmt.Errorf("%d nodes, want %d", len(list.Items), count)
	}
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			if c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
				return fmt.Errorf("node %s is not Ready: %s: %s", list.Items[i].Name, c.Reason, c.Message)
			}
		}
	}
	return nil
}

// podsRun returns an error unless count pods of the namespace default are Running.
func (e *env) podsRun(count int) error {
	list, err := e.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	running := 0
	for i := range list.Items {
		if list.Items[i].Status.Phase == v1.PodRunning {
			running++
		}
	}
	if running != count {
		return errorf("%d of %d pods run", running, count)
	}
	return nil
}
