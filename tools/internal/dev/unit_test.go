package dev

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// Unit supports the systemctl calls of upstream's node suite: find the unit, kill the agent, show that it is gone, and restart it.
func TestUnitStopsAndRestartsTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := proc.Spec{
		PIDFile: filepath.Join(dir, "run", "node.pid"), Log: filepath.Join(dir, "log"), Path: "/bin/sh",
		Args: []string{"-c", "exec sleep 1000"}, Dir: dir,
	}
	first, err := proc.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p, runs := proc.Find(spec.PIDFile); runs {
			_ = p.Kill(t.Context())
		}
	})
	if err := writeUnit(dir, spec); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		if err := Unit(t.Context(), dir, args, &out); err != nil {
			t.Fatalf("systemctl %v: %v", args, err)
		}
		return out.String()
	}
	if out := call("list-units", "*kubelet*", "--state=running"); !strings.Contains(out, "kubelet-node") {
		t.Errorf("the running unit is not listed: %q", out)
	}
	if out := call("list-units", "containerd*"); out != "" {
		t.Errorf("another pattern lists %q", out)
	}
	call("reset-failed", "kubelet-node")
	call("kill", "kubelet-node")
	if first.Alive() {
		t.Error("the agent lives after kill")
	}
	if out := call("list-units", "*kubelet*", "--state=running"); out != "" {
		t.Errorf("a unit that does not run is listed as running: %q", out)
	}
	if out := call("list-units", "*kubelet*"); !strings.Contains(out, "kubelet-node") {
		t.Errorf("a unit that does not run is not listed: %q", out)
	}
	call("restart", "kubelet-node")
	second, runs := proc.Find(spec.PIDFile)
	if !runs {
		t.Fatal("the agent does not run after restart")
	}
	call("start", "kubelet-node")
	if !second.Alive() {
		t.Error("start replaced an agent that runs")
	}
	call("restart", "kubelet-node.service")
	if third, runs := proc.Find(spec.PIDFile); !runs || second.Alive() || third == second {
		t.Error("restart did not replace the agent")
	}
}

func TestUnitRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Unit(t.Context(), dir, []string{"restart", "kubelet-node"}, &strings.Builder{}); err == nil {
		t.Error("no node agent is known, and there is no error")
	}
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeUnit(dir, proc.Spec{PIDFile: filepath.Join(dir, "pid")}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"restart"}, {"restart", "containerd"}, {"mask", "kubelet-node"}, {"restart", "kubelet-node", "containerd"}} {
		if err := Unit(t.Context(), dir, args, &strings.Builder{}); err == nil {
			t.Errorf("systemctl %v is no error", args)
		}
	}
}
