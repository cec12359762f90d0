package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/bench/internal/table"
	"github.com/wherry-node/wherry/bench/internal/work"
)

// The rounds of two runs become the rounds of one table, if the runs are of the same work on the same machine.
func TestMerge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, cpu string, pods int, total float64) string {
		m := map[string]any{
			"machine": []string{"machine: " + cpu, "load before: " + name, "wherry: commit 1", "runtime: r", "runc: r"},
			"plan":    work.Plan{Pods: pods}, "rounds": 1,
			"samples": map[string][]table.Samples{wherry: {{"pods at once, create to Ready, total": {total}}}},
			"calls":   map[string]map[string][]string{wherry: {"CRI calls per minute at rest": {"12.0 Status"}}},
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b := file("a", "x", 100, 10), file("b", "x", 100, 20)
	o := options{md: filepath.Join(dir, "out.md")}
	if err := merge(&o, []string{a, b}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.md)
	if err != nil || !strings.Contains(string(text), "2 rounds") || !strings.Contains(string(text), "15.0 (10.0-20.0)") {
		t.Errorf("%v: %s", err, text)
	}
	for _, other := range []string{file("c", "y", 100, 20), file("d", "x", 50, 20)} {
		if err := merge(&options{}, []string{a, other}); err == nil || !strings.Contains(err.Error(), "not runs of the same work") {
			t.Errorf("%s: %v", other, err)
		}
	}
}
