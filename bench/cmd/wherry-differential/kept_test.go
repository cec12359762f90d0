package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// keptBlocks returns each case in a directory of kept cases once, even if several files contain the case. Cases with a restart of the
// agents are in blocks of their own.
func TestKeptBlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	restart := differ.Generate(7)
	restart.Kind, restart.Kill = differ.Restart, true
	for i, c := range []*differ.Case{differ.Generate(7), restart, differ.Generate(7), differ.GenerateStatic(7)} {
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	quiet, restarts, err := keptBlocks(dir)
	if err != nil || len(quiet) != 1 || len(quiet[0].cases) != 2 || len(restarts) != 1 || len(restarts[0].cases) != 1 || !restarts[0].kill {
		t.Fatalf("%+v, %+v, %v", quiet, restarts, err)
	}
	quiet, restarts, err = keptBlocks(filepath.Join(dir, "1.json"))
	if err != nil || len(quiet) != 0 || len(restarts) != 1 {
		t.Errorf("one file: %+v, %+v, %v", quiet, restarts, err)
	}
	if _, _, err := keptBlocks(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no cases") {
		t.Errorf("an empty directory: %v", err)
	}
}
