package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUnused(t *testing.T) {
	t.Parallel()
	found, err := run([]string{filepath.Join("testdata", "m")}, []string{"example.org/m/none"})
	if err != nil {
		t.Fatal(err)
	}
	const file = "internal/a/a.go"
	want := []finding{
		{file, 6, "only tests use Unused"},
		{file, 10, "nobody reads field Written"},
		{file, 11, "nobody reads field Counted"},
		{file, 26, "only tests use method Perimeter"},
		{file, 35, "only tests use Recursive"},
		{file, 37, "nobody reads field lost"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("got\n%v\nwant\n%v", found, want)
	}
	if left, err := run([]string{filepath.Join("testdata", "m")}, []string{"example.org/m/internal/..."}); err != nil || len(left) != 0 {
		t.Errorf("of a package that tests use: %v, %v", left, err)
	}
}

func TestKnown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "known.txt")
	for text, left := range map[string]int{"# nothing\n": 2, "a.go: nobody reads field F: tests do\n": 1, "a.go: nobody reads field F\n": -1} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := without([]finding{{"a.go", 1, "nobody reads field F"}, {"b.go", 1, "nobody reads field F"}}, file)
		if left < 0 {
			if err == nil || !strings.Contains(err.Error(), "no reason") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil || len(got) != left {
			t.Errorf("%q: %v, %v, want %d left", text, got, err, left)
		}
	}
}
