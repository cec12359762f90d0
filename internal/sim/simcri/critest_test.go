package simcri

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// critestBinary is upstream's test suite for container runtimes, built by make build.
const critestBinary = "../../../bin/critest"

// readCritest reads the list of specs: true for those that pass, false for those that simcri cannot support.
func readCritest(t *testing.T) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile("testdata/critest.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		verdict, name, ok := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !ok || verdict != "pass" && verdict != "cannot":
			t.Fatalf("testdata/critest.txt: %q: want pass or cannot, and a spec", line)
		default:
			out[name] = verdict == "pass"
		}
	}
	return out
}

type critestSpec struct {
	Name  string
	State string
	Why   string
}

// runCritest runs the specs of critest whose names match the pattern focus, and returns the result of every spec.
func runCritest(t *testing.T, endpoint, focus string) []critestSpec {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, critestBinary, "--runtime-endpoint", endpoint, "--ginkgo.no-color", "--ginkgo.focus", focus, "--ginkgo.json-report", report)
	said, err := cmd.CombinedOutput() // the report has the result of each spec, so the exit status is not needed
	raw, readErr := os.ReadFile(report)
	if readErr != nil {
		t.Fatalf("critest left no report (%v): %v\n%s", readErr, err, said)
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			Failure                    struct{ Message string }
		}
	}
	if err := json.Unmarshal(raw, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("critest's report: %d suites, %v", len(reports), err)
	}
	var out []critestSpec
	for _, s := range reports[0].SpecReports {
		if s.LeafNodeType == "It" {
			out = append(out, critestSpec{strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "), s.State, s.Failure.Message})
		}
	}
	return out
}

// TestCritest runs upstream's specs against the simulated runtime, over gRPC on a socket. All specs that the list marks as
// passing must pass, and the list must name every spec.
func TestCritest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	if _, err := os.Stat(critestBinary); err != nil {
		t.Skip("bin/critest is not there: make build makes it")
	}
	dir, err := os.MkdirTemp("", "simcri") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{WriteLogs: true, KeepEnv: true})
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	list := readCritest(t)
	var focus []string
	for name, passes := range list {
		if passes {
			focus = append(focus, regexp.QuoteMeta(name))
		}
	}
	passed := 0
	for _, s := range runCritest(t, "unix://"+l.Addr().String(), strings.Join(focus, "|")) {
		must, listed := list[s.Name]
		switch {
		case !listed:
			t.Errorf("testdata/critest.txt does not know the spec %q", s.Name)
		case must && s.State != "passed":
			t.Errorf("%s: %s: %s", s.State, s.Name, s.Why)
		case must:
			passed++
		}
		delete(list, s.Name)
	}
	for name := range list {
		t.Errorf("testdata/critest.txt names a spec that critest does not have: %q", name)
	}
	t.Logf("%d specs of critest pass", passed)
}
