package integration

import (
	"bytes"
	"path/filepath"
	"regexp"
	"testing"
)

// TestManyAgentsInOneProcess runs the program examples/many with a few nodes. Each agent is a node of the real API server, has a simulated
// runtime, and otherwise runs the same code as any node.
func TestManyAgentsInOneProcess(t *testing.T) {
	e := use(t)
	bin := filepath.Join(t.TempDir(), "many")
	build := command("go", "build", "-o", bin, "../../examples/many")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build examples/many: %v\n%s", err, out)
	}
	var out bytes.Buffer
	cmd := command(bin, "--kubeconfig", e.kubeconfig(), "--nodes", "10", "--pods", "5", "--timeout", "2m")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("examples/many: %v\n%s", err, out.String())
	}
	for _, want := range []string{`10 nodes Ready`, `50 pods Running`, `per idle pod: +[0-9.-]+ goroutines +[0-9.]+ KiB heap`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the output has no %q:\n%s", want, out.String())
		}
	}
}
