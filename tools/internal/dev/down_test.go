package dev

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRemoveLogLinks(t *testing.T) {
	t.Parallel()
	dir, logs := filepath.Join(t.TempDir(), "containers"), filepath.Join(t.TempDir(), "logs")
	if err := removeLogLinks(dir, logs); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"ours": logs + "/a/0.log", "theirs": logs + "-of-another/a/0.log"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeLogLinks(dir, logs); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "theirs" {
		t.Errorf("left: %v (%v), want the link of another", left, err)
	}
}
