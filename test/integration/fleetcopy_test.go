package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// copiedCluster has a Deployment, a DaemonSet, a Job and a pod without an owner. Their pods run on simulated nodes.
const copiedCluster = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: registry.example/web:1, env: [{name: PASSWORD, value: s3cr3t}], resources: {requests: {cpu: 500m}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: default}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: agent, image: registry.example/agent:1}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: sum, namespace: default}
spec:
  completions: 2
  parallelism: 2
  template:
    metadata: {annotations: {wherry.dev/sim-run-for: 3s}}
    spec:
      restartPolicy: Never
      containers: [{name: sum, image: registry.example/sum:1}]
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: default}
spec:
  containers: [{name: main, image: registry.example/alone:1}]
`

// A snapshot of a cluster is replayed with ten times as many nodes and pods, by the controllers of the copy. The snapshot has no values of
// environment variables.
func TestFleetCopiesACluster(t *testing.T) {
	e := use(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "first")
	first, err := start(filepath.Join(e.dir, "fleet-first.log"), e.wherry, "fleet", "--name", "first", "--nodes", "4", "--no-serve", "--data-dir", data)
	if err != nil {
		t.Fatal(err)
	}
	defer first.stop()
	kubeconfig := filepath.Join(data, "admin.kubeconfig")
	kubectl := func(stdin string, args ...string) (string, error) {
		return e.runKubectl(kubeconfig, stdin, args...)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(wait(2*time.Minute, func() error {
		nodes, err := kubectl("", "get", "nodes")
		if err == nil && strings.Count(nodes, " Ready ") != 4 {
			err = errorf("nodes: %s", nodes)
		}
		return err
	}))
	_, err = kubectl(copiedCluster, "apply", "-f", "-")
	must(err)
	must(wait(2*time.Minute, func() error {
		phases, err := kubectl("", "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
		if err == nil && (strings.Count(phases, "Running") != 8 || strings.Count(phases, "Succeeded") != 2) {
			err = errorf("phases of the pods: %s", phases)
		}
		return err
	}))
	snapshot, said, err := output(command(e.wherry, "fleet", "snapshot", "--kubeconfig", kubeconfig))
	must(err)
	if !strings.Contains(said, "4 nodes in 1 groups, 10 pods in 4 workloads") || strings.Contains(snapshot, "s3cr3t") {
		t.Errorf("snapshot: %s\n%s", said, snapshot)
	}
	first.stop()
	file := filepath.Join(dir, "cluster.yaml")
	must(os.WriteFile(file, []byte(snapshot), 0o600))
	// Ten times 3 pods of the Deployment, 4 of the DaemonSet and one alone run; ten times 2 pods of the Job have ended.
	stdout, stderr, err := output(command(e.wherry, "fleet", "--name", "second", "--snapshot", file, "--scale", "10", "--no-serve", "--once", "--within", "3m", "-o", "json",
		"--expect", "nodes=ready", "--expect", "nodes.ready=40", "--expect", "pods.running=80", "--expect", "pods.succeeded=20"))
	if err != nil {
		t.Errorf("the copy: %v\n%s%s", err, stdout, stderr)
	}
}
