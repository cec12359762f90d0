package volume_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/edge/volume"
)

// A disk in memory does what the disk of the machine does, with the same errors.
func TestDisks(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]volume.Disk{"machine": volume.OwnDiskForTest(), "memory": &volume.MemoryDisk{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			at := func(path string) string { return filepath.Join(root, path) }
			is := func(what string, err, want error) {
				t.Helper()
				if !errors.Is(err, want) || (err == nil) != (want == nil) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			}
			list := func(dir string) (names []string) {
				t.Helper()
				entries, err := d.ReadDir(at(dir))
				if err != nil {
					t.Errorf("list %s: %v", dir, err)
				}
				for _, e := range entries {
					if e.IsDir() != (e.Type() == fs.ModeDir) {
						t.Errorf("entry %s: directory %v, type %s", e.Name(), e.IsDir(), e.Type())
					}
					if e.IsDir() {
						names = append(names, e.Name()+"/")
						continue
					}
					names = append(names, e.Name())
				}
				return names
			}
			_, err := d.ReadDir(at("a"))
			is("list a directory that is missing", err, fs.ErrNotExist)
			_, err = d.ReadFile(at("a/x"))
			is("read a file that is missing", err, fs.ErrNotExist)
			_, err = d.Resolve(at("a"))
			is("resolve a directory that is missing", err, fs.ErrNotExist)
			is("write into a directory that is missing", d.ReplaceFile(at("a/x"), []byte("1"), 0o600), fs.ErrNotExist)
			is("remove what is missing", d.Remove(at("a")), fs.ErrNotExist)
			if d.Exists(at("a")) {
				t.Error("a exists")
			}
			is("make directories", d.MkdirAll(at("a/b"), 0o700), nil)
			is("make them again", d.MkdirAll(at("a/b"), 0o700), nil)
			for _, text := range []string{"one", ""} { // an empty file is no directory
				is("write a file", d.ReplaceFile(at("a/x"), []byte(text), 0o600), nil)
				got, err := d.ReadFile(at("a/x"))
				is("read a file", err, nil)
				if string(got) != text {
					t.Errorf("the file has %q, want %q", got, text)
				}
			}
			is("make a directory below a file", d.MkdirAll(at("a/x/y"), 0o700), unix.ENOTDIR)
			_, err = d.ReadDir(at("a/x"))
			is("list a file", err, unix.ENOTDIR)
			if got, want := list("a"), []string{"b/", "x"}; !slices.Equal(got, want) {
				t.Errorf("a has %q, want %q", got, want)
			}
			is("remove a directory that is not empty", d.Remove(at("a")), unix.ENOTEMPTY)
			is("remove a file", d.Remove(at("a/x")), nil)
			is("remove an empty directory", d.Remove(at("a/b")), nil)
			if got := list("a"); len(got) > 0 || !d.Exists(at("a")) {
				t.Errorf("a has %q at the end", got)
			}
			real, err := d.Resolve(at("a"))
			is("resolve a directory", err, nil)
			if filepath.Base(real) != "a" {
				t.Errorf("a is %s", real)
			}
		})
	}
}
