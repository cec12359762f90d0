package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testWriter(t *testing.T) *writer {
	t.Helper()
	return &writer{dir: t.TempDir(), group: -1, remove: os.RemoveAll}
}

func filesOf(content map[string]string) map[string]file {
	files := map[string]file{}
	for name, data := range content {
		files[name] = file{Data: []byte(data), Mode: 0o644, UID: -1}
	}
	return files
}

// shown returns the files that a reader finds, by the names that readers use.
func shown(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			got[e.Name()] = "dangling"
			continue
		}
		err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			rel, _ := filepath.Rel(real, path)
			got[filepath.Join(e.Name(), rel)] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// hidden counts the entries with names that the writer keeps for itself, except ..data.
func hidden(t *testing.T, dir string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "..*"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		if filepath.Base(name) != dataLink {
			n++
		}
	}
	return n
}

func TestWriterShowsExactlyTheFiles(t *testing.T) {
	t.Parallel()
	w := testWriter(t)
	for _, want := range []map[string]string{
		{"a": "1", "d/b": "2"},
		{"a": "1", "d/b": "3"},
		{"d/c": "2"},
		{},
		{"d": "now a file"},
		{"d/e/f": "and a directory again", "a": ""},
	} {
		changed, err := w.write(filesOf(want), nil)
		if err != nil || !changed {
			t.Fatalf("write %v: changed %t, %v", want, changed, err)
		}
		if diff := cmp.Diff(want, shown(t, w.dir)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if n := hidden(t, w.dir); n != 1 {
			t.Errorf("%d data directories, want 1", n)
		}
		before, _ := os.Readlink(filepath.Join(w.dir, dataLink))
		changed, err = w.write(filesOf(want), nil)
		after, _ := os.Readlink(filepath.Join(w.dir, dataLink))
		if err != nil || changed || before != after {
			t.Errorf("the same content was written again: changed %t, data %s -> %s, %v", changed, before, after, err)
		}
	}
}

func TestWriterSeesADifferentMode(t *testing.T) {
	t.Parallel()
	w := testWriter(t)
	files := filesOf(map[string]string{"a": "1"})
	if _, err := w.write(files, nil); err != nil {
		t.Fatal(err)
	}
	files["a"] = file{Data: []byte("1"), Mode: 0o600, UID: -1}
	if changed, err := w.write(files, nil); err != nil || !changed {
		t.Errorf("changed %t, %v", changed, err)
	}
	info, err := os.Stat(filepath.Join(w.dir, "a"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

var errCrash = errors.New("crash")

// After a crash at any step, a reader who goes through ..data sees all old or all new content, and the next write ends
// with the new content and leaves nothing else behind.
func TestWriterSurvivesACrashAtAnyStep(t *testing.T) {
	t.Parallel()
	before := map[string]string{"a": "old", "d/b": "old", "gone": "old"}
	after := map[string]string{"a": "new", "d/b": "new", "d/c": "new", "fresh": "new"}
	for at := 0; ; at++ {
		w := testWriter(t)
		if _, err := w.write(filesOf(before), nil); err != nil {
			t.Fatal(err)
		}
		step, name := 0, ""
		w.crash = func(s string) error {
			if step++; step > at {
				name = s
				return errCrash
			}
			return nil
		}
		_, err := w.write(filesOf(after), nil)
		crashed := errors.Is(err, errCrash)
		data, linkErr := os.Readlink(filepath.Join(w.dir, dataLink))
		if linkErr != nil {
			t.Fatalf("crash before step %q: no data: %v", name, linkErr)
		}
		got := map[string]string{}
		root := filepath.Join(w.dir, data)
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(root, path)
				b, _ := os.ReadFile(path)
				got[rel] = string(b)
			}
			return err
		})
		if !cmp.Equal(before, got) && !cmp.Equal(after, got) {
			t.Errorf("crash before step %q shows a mixture: %v", name, got)
		}
		w.crash = nil
		if _, err := w.write(filesOf(after), nil); err != nil {
			t.Fatalf("write after crash before step %q: %v", name, err)
		}
		if diff := cmp.Diff(after, shown(t, w.dir)); diff != "" {
			t.Errorf("after crash before step %q: -want +got:\n%s", name, diff)
		}
		if n := hidden(t, w.dir); n != 1 {
			t.Errorf("after crash before step %q: %d data directories, want 1", name, n)
		}
		if !crashed {
			if at < 8 {
				t.Fatalf("only %d steps: the test has nothing to crash", at)
			}
			return
		}
	}
}

func TestWriterMakesNestedMountPoints(t *testing.T) {
	t.Parallel()
	w := testWriter(t)
	files := filesOf(map[string]string{"d/b": "1", "f": "2"})
	for range 2 {
		if _, err := w.write(files, []string{"beside/it", "d/inside", "f"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"beside/it", "d/inside"} {
		if info, err := os.Stat(filepath.Join(w.dir, dir)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
	files["d/b"] = file{Data: []byte("other"), Mode: 0o644, UID: -1}
	if _, err := w.write(files, []string{"beside/it", "d/inside", "f"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "d/inside")); err != nil {
		t.Errorf("mount point is gone after an update: %v", err)
	}
}

// A file replaces an empty directory. The directory was made for a subPath when its optional key was missing; now the key exists.
func TestWriterReplacesAnEmptyDirectoryByAFile(t *testing.T) {
	t.Parallel()
	w := testWriter(t)
	if _, err := w.write(nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(w.dir, "key"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"key": "here"}
	if _, err := w.write(filesOf(want), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, map[string]string{"key": shown(t, w.dir)["key"]}); diff != "" {
		t.Error(diff)
	}
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for path, ok := range map[string]bool{
		"a": true, "a/b": true, ".hidden": true, "a..b": true, "a/..b": true, "...": false,
		"": false, ".": false, "/a": false, "..": false, "../a": false, "a/../b": false, "a/..": false, "..a": false,
		strings.Repeat("x", 256): false, strings.Repeat("x", 255): true, strings.Repeat("x/", 2100) + "x": false, "a\x00b": false,
	} {
		if err := checkPath(path); (err == nil) != ok {
			t.Errorf("checkPath(%.20q) = %v, want ok %t", path, err, ok)
		}
	}
}

func FuzzWriterStaysInside(f *testing.F) {
	f.Add("a", "b/c")
	f.Add("../x", "..data/y")
	f.Add("a/./b", "a//b")
	f.Fuzz(func(t *testing.T, one, two string) {
		outer := t.TempDir()
		w := &writer{dir: filepath.Join(outer, "volume"), group: -1, remove: os.RemoveAll}
		if err := os.Mkdir(w.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		files := map[string]file{}
		for i, p := range []string{one, two} {
			if err := put(files, p, file{Data: fmt.Append(nil, i), Mode: 0o644, UID: -1}); err != nil {
				return
			}
		}
		_, err := w.write(files, nil)
		if left, _ := os.ReadDir(outer); len(left) != 1 {
			t.Fatalf("paths %q and %q wrote outside of the volume: %v", one, two, left)
		}
		if err != nil {
			return
		}
		for name, want := range files {
			if got, err := os.ReadFile(filepath.Join(w.dir, name)); err != nil || string(got) != string(want.Data) {
				t.Errorf("%q: %q, %v", name, got, err)
			}
		}
	})
}

// An optional object beside which another volume is mounted appears and disappears. The directory for the mount point is first in the volume itself, then among
// the files, and then in the volume again.
func TestWriterMovesMountPoints(t *testing.T) {
	t.Parallel()
	w := testWriter(t)
	points := []string{"d/inside/deep"}
	for step, want := range []map[string]string{{"f": "1"}, {"f": "1", "d/b": "2"}, {"f": "1"}, {"f": "1", "d/b": "3"}} {
		if _, err := w.write(filesOf(want), points); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if info, err := os.Stat(filepath.Join(w.dir, points[0])); err != nil || !info.IsDir() {
			t.Errorf("step %d: the mount point: %v", step, err)
		}
		if diff := cmp.Diff(want, shown(t, w.dir)); diff != "" {
			t.Errorf("step %d: -want +got:\n%s", step, diff)
		}
	}
}
