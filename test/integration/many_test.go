package integration

import (
	"bytes"
	"path/filepath"
	"regexp"
	"testing"
)

// TestManyAgentsInOneProcess runs examples/many, smaller: each agent its own node on the real API server, over the
// simulated runtime, by the same code as the node that runs containers.
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
