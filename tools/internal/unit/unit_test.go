package unit

import (
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
	file := filepath.Join(dir, "unit.json")
	if err := Write(file, Unit{Name: "kubelet-node", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		if err := Systemctl(t.Context(), file, args, &out); err != nil {
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
	file := filepath.Join(dir, "unit.json")
	if err := Systemctl(t.Context(), file, []string{"restart", "kubelet-node"}, &strings.Builder{}); err == nil {
		t.Error("no unit is known, and there is no error")
	}
	if err := Write(file, Unit{Name: "kubelet-node", Spec: proc.Spec{PIDFile: filepath.Join(dir, "pid")}}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"restart"}, {"restart", "containerd"}, {"mask", "kubelet-node"}, {"restart", "kubelet-node", "containerd"}} {
		if err := Systemctl(t.Context(), file, args, &strings.Builder{}); err == nil {
			t.Errorf("systemctl %v is no error", args)
		}
	}
}

// kubeadm looks whether the unit exists, is enabled and runs.
func TestUnitAnswersKubeadm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "unit.json")
	spec := proc.Spec{PIDFile: filepath.Join(dir, "pid"), Log: filepath.Join(dir, "log"), Path: "/bin/sleep", Args: []string{"1000"}, Dir: dir}
	if err := Write(file, Unit{Name: "kubelet", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p, runs := proc.Find(spec.PIDFile); runs {
			_ = p.Kill(t.Context())
		}
	})
	for _, c := range []struct {
		args []string
		want string
		ok   bool
	}{
		{[]string{"status", "firewalld"}, "could not be found", false},
		{[]string{"is-active", "firewalld"}, "inactive", false},
		{[]string{"status", "kubelet"}, "inactive (dead)", true},
		{[]string{"is-enabled", "kubelet"}, "enabled", true},
		{[]string{"is-active", "kubelet"}, "inactive", false},
		{[]string{"daemon-reload"}, "", true},
		{[]string{"start", "kubelet"}, "", true},
		{[]string{"is-active", "kubelet"}, "active\n", true},
		{[]string{"status", "kubelet.service"}, "active (running)", true},
		{[]string{"stop", "kubelet"}, "", true},
		{[]string{"is-active", "kubelet"}, "inactive", false},
	} {
		var out strings.Builder
		err := Systemctl(t.Context(), file, c.args, &out)
		if (err == nil) != c.ok || !strings.Contains(out.String(), c.want) {
			t.Errorf("systemctl %v: %q, %v", c.args, out.String(), err)
		}
	}
}
