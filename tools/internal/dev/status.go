package dev

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// summary prints what a new user needs to know when the environment is up.
func (e *Env) summary(ctx context.Context, s *state) error {
	for _, args := range [][]string{{"get", "nodes", "-o", "wide"}, {"get", "pods", "-A", "-o", "wide"}} {
		out, err := e.kubectl(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Progress, "\n%s", out)
	}
	fmt.Fprintf(e.Progress, `
Up in %.0f s. In your shell:

  export KUBECONFIG=%s

Six things to try:

  kubectl describe node %[3]s
  kubectl logs deploy/web -f
  kubectl exec -it deploy/web -- sh
  kubectl get --raw /api/v1/nodes/%[3]s/proxy/stats/summary
  kubectl scale deploy/web --replicas=5; kubectl get pods -w
  cp examples/standalone/web.yaml %[4]s/    # a static pod: without the API server; its mirror is in kubectl get pods

make status shows what runs, make down ends all of it.
`, e.elapsed().Seconds(), e.Kubeconfig(), s.NodeName, e.path("node", "manifests"))
	if s.Runtime == runtimeSimulated {
		fmt.Fprintln(e.Progress, "The node is simulated: its containers are records in memory, nothing is executed.")
	}
	return nil
}

// Status prints which parts of the environment run, and the node and its pods.
func (e *Env) Status(ctx context.Context) error {
	s, up, err := e.readState()
	if err != nil {
		return err
	}
	if !up {
		fmt.Fprintln(e.Progress, "The environment is down. make up brings it up.")
		return nil
	}
	for _, part := range []struct{ name, pidFile, log string }{
		{"control plane", e.pidFile("controlplane"), e.path("logs", "controlplane.log")},
		{"containerd", e.path("containerd", "containerd.pid"), e.path("containerd", "containerd.log")},
		{"node", e.pidFile("node"), e.path("logs", "node.log")},
	} {
		state := "not running"
		if p, ok := proc.Find(part.pidFile); ok {
			state = fmt.Sprintf("process %d, %s", p.PID, memory(p.PID))
		} else if part.name == "containerd" && s.Runtime != runtimeContainerd2 && s.Runtime != runtimeDebian {
			state, part.log = "not ours: RUNTIME="+s.Runtime, "-"
		}
		fmt.Fprintf(e.Progress, "%-14s %-36s log %s\n", part.name, state, part.log)
	}
	components, _ := filepath.Glob(e.path("controlplane", "run", "*.pid"))
	for _, file := range components {
		if data, err := os.ReadFile(file); err == nil {
			pid := strings.TrimSpace(string(data))
			name := strings.TrimSuffix(filepath.Base(file), ".pid")
			fmt.Fprintf(e.Progress, "  %-24s process %s, %s\n", name, pid, memory(pid))
		}
	}
	fmt.Fprintf(e.Progress, "runtime %s, KUBECONFIG=%s\n", s.Runtime, e.Kubeconfig())
	for _, args := range [][]string{{"get", "nodes", "-o", "wide"}, {"get", "pods", "-A", "-o", "wide"}} {
		out, err := e.kubectl(ctx, append(args, "--request-timeout=5s")...)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Progress, "\n%s", out)
	}
	return nil
}

// memory returns the resident memory of a process as text; "gone" if the process does not exist.
func memory(pid any) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%v/status", pid))
	if err != nil {
		return "gone"
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib int
			if _, err := fmt.Sscan(value, &kib); err == nil {
				return fmt.Sprintf("%d MiB", kib>>10)
			}
		}
	}
	return "no memory"
}
