package source

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The directory source logs a file that is not a manifest only once, and forgets the file's name after the file was deleted.
func TestFilesThatArePassedOverAreForgotten(t *testing.T) {
	t.Parallel()
	dir, said := t.TempDir(), &strings.Builder{}
	s := &scan{Dir: &Dir{Config: Config{Log: slog.New(slog.NewTextHandler(said, nil))}, Path: dir}, passed: map[string]bool{}}
	list := func() {
		t.Helper()
		if _, err := s.list(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		name := filepath.Join(dir, fmt.Sprint("core.", i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		list()
		list()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	list()
	if n := strings.Count(said.String(), "ignoring a file"); n != 20 || len(s.passed) != 0 {
		t.Errorf("logged %d times for 20 files, %d are remembered", n, len(s.passed))
	}
}
