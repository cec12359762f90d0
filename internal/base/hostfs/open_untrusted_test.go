package hostfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/proof/plant"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Every function that opens a file refuses, without waiting, everything that is not a regular file. Its error names the kind of file that
// it found.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	t.Parallel()
	ways := map[string]func(path string) error{
		"OpenUntrusted":        func(p string) error { f, err := hostfs.OpenUntrusted(p, 1); f.Close(); return err },
		"OpenUntrustedToWrite": func(p string) error { f, err := hostfs.OpenUntrustedToWrite(p, 1); f.Close(); return err },
		"ReadUntrusted":        func(p string) error { _, err := hostfs.ReadUntrusted(p, 1, 100); return err },
		"ReadUntrustedEnd":     func(p string) error { _, err := hostfs.ReadUntrustedEnd(p, 1, 100); return err },
		"UntrustedDir": func(p string) error {
			dir, err := hostfs.OpenUntrustedDir(filepath.Dir(p), 1)
			if err != nil {
				return fmt.Errorf("open the directory: %v", err)
			}
			defer dir.Close()
			f, err := dir.Open(filepath.Base(p))
			f.Close()
			return err
		},
	}
	for _, thing := range plant.Things() {
		for name, open := range ways {
			t.Run(thing.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "f")
				thing.Plant(t, path)
				plant.Returns(t, func() {
					err := open(path)
					if !errors.Is(err, hostfs.ErrNotRegular) {
						t.Errorf("error %v, want ErrNotRegular", err)
					}
					if what, _, _ := strings.Cut(thing.Name, " "); err != nil && !strings.Contains(err.Error(), what) {
						t.Errorf("error %q does not name the %s", err, what)
					}
				})
			})
		}
	}
}

func TestOpenUntrusted(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	must(t,
		os.MkdirAll(filepath.Join(base, "real/pod/c"), 0o755),
		os.WriteFile(filepath.Join(base, "real/pod/c/0.log"), []byte("0123456789"), 0o644),
		os.Symlink("real", filepath.Join(base, "admin")),           // a link above the names that containers control
		os.Symlink("pod", filepath.Join(base, "real/other-pod")),   // a link in place of a pod's directory
		os.Symlink("../pod/c", filepath.Join(base, "real/pod/c2")), // a link in place of a container's directory
	)
	for _, tt := range []struct {
		path string
		want error
	}{
		{"real/pod/c/0.log", nil},
		{"admin/pod/c/0.log", nil},
		{"admin/pod/../pod/c//0.log", nil},
		{"real/other-pod/c/0.log", hostfs.ErrNotRegular},
		{"real/pod/c2/0.log", hostfs.ErrNotRegular},
		{"real/pod/c/1.log", fs.ErrNotExist},
		{"real/gone/c/0.log", fs.ErrNotExist},
		{"real/pod/c/0.log/x", unix.ENOTDIR},
		{"real/pod/c", hostfs.ErrNotRegular},
	} {
		f, err := hostfs.OpenUntrusted(filepath.Join(base)+"/"+tt.path, 3)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.path, err, tt.want)
		}
		if err == nil && f.Name() != filepath.Join(base, filepath.Clean(tt.path)) {
			t.Errorf("%s: name %s", tt.path, f.Name())
		}
		f.Close()
	}
	for limit, want := range map[int64]error{9: hostfs.ErrTooLarge, 10: nil, 11: nil} {
		if data, err := hostfs.ReadUntrusted(filepath.Join(base, "real/pod/c/0.log"), 3, limit); !errors.Is(err, want) || (want == nil) != (string(data) == "0123456789") {
			t.Errorf("limit %d: %q, %v", limit, data, err)
		}
	}
	for limit, want := range map[int64]string{0: "", 3: "789", 10: "0123456789", 99: "0123456789"} {
		if data, err := hostfs.ReadUntrustedEnd(filepath.Join(base, "real/pod/c/0.log"), 3, limit); err != nil || string(data) != want {
			t.Errorf("end of %d bytes: %q, %v", limit, data, err)
		}
	}
	if _, err := hostfs.OpenUntrusted("..", 1); err == nil {
		t.Error("a path that names no file was opened")
	}
}

// ReadUntrusted refuses a sparse file of 4 TiB, ReadUntrustedEnd reads the end of it, and OverwriteUntrusted replaces its content. Together
// they allocate less than 1 MiB. The test is not parallel, because it measures what the process allocates.
func TestASparseFileIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	plant.Sparse(t, path)
	plant.Allocates(t, 1<<20, func() {
		if _, err := hostfs.ReadUntrusted(path, 1, 4096); !errors.Is(err, hostfs.ErrTooLarge) {
			t.Errorf("error %v, want ErrTooLarge", err)
		}
		if end, err := hostfs.ReadUntrustedEnd(path, 1, 4096); err != nil || len(end) != 4096 {
			t.Errorf("end: %d bytes, %v", len(end), err)
		}
		if err := hostfs.OverwriteUntrusted(path, []byte("new"), 0o644); err != nil {
			t.Error(err)
		}
	})
	if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
		t.Errorf("the file has %q, %v", data, err)
	}
}

// OverwriteUntrusted writes into the existing file, which keeps its inode. If path is a hard link to a file of the node, it makes a new
// file, and the node's file keeps its content. If path is a directory that is not empty, it returns an error with the path.
func TestOverwriteUntrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "hosts")
	must(t, hostfs.OverwriteUntrusted(path, []byte("first, and long"), 0o644))
	first, err := os.Stat(path)
	must(t, err, os.Chmod(path, 0o4755))
	must(t, hostfs.OverwriteUntrusted(path, []byte("second"), 0o644))
	second, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(first, second) || second.Mode() != 0o644 || second.Size() != 6 {
		t.Errorf("the same file: %v, mode %v, %d bytes", os.SameFile(first, second), second.Mode(), second.Size())
	}

	hard := filepath.Join(dir, "passwd")
	must(t, os.WriteFile(hard, []byte("the node's own"), 0o600), os.Remove(path), os.Link(hard, path))
	must(t, hostfs.OverwriteUntrusted(path, []byte("third"), 0o644))
	if data, err := os.ReadFile(hard); err != nil || string(data) != "the node's own" {
		t.Errorf("what a hard link leads to was written: %q %v", data, err)
	}

	must(t, os.Remove(path), os.MkdirAll(filepath.Join(path, "full"), 0o755))
	if err := hostfs.OverwriteUntrusted(path, []byte("x"), 0o644); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a directory with something in it: %v", err)
	}
}

func TestOverwriteReplacesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hosts")
			thing.Plant(t, path)
			target, _ := filepath.EvalSymlinks(path)
			plant.Returns(t, func() {
				if err := hostfs.OverwriteUntrusted(path, []byte("new"), 0o644); err != nil {
					t.Error(err)
				}
			})
			if st, err := os.Lstat(path); err != nil || st.Mode() != 0o644 || st.Size() != 3 {
				t.Errorf("%v, %v", st, err)
			}
			if thing.Name == "link" {
				if data, err := os.ReadFile(target); err != nil || string(data) != plant.Secret {
					t.Errorf("the link was written through: %q %v", data, err)
				}
			}
		})
	}
}

// A container that owns a file can hold a lease on it, which makes a blocking open wait. OverwriteUntrusted returns EAGAIN at once instead.
func TestALeaseDelaysNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hosts")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skip("the file system grants no lease: ", err)
	}
	plant.Returns(t, func() {
		if err := hostfs.OverwriteUntrusted(path, []byte("new"), 0o644); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("error %v, want EAGAIN", err)
		}
	})
}

func TestMakeUntrustedDir(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	must(t, os.Mkdir(filepath.Join(base, "elsewhere"), 0o755))
	made := filepath.Join(base, "pods/pod/c")
	for range 2 {
		must(t, hostfs.MakeUntrustedDir(made, 2, 0o755))
	}
	if st, err := os.Stat(made); err != nil || !st.IsDir() {
		t.Fatal(st, err)
	}
	must(t, os.Symlink("../elsewhere", filepath.Join(base, "pods/linked")), os.Symlink("../../elsewhere", filepath.Join(base, "pods/pod/linked")))
	for _, path := range []string{"pods/linked/c", "pods/pod/linked"} {
		if err := hostfs.MakeUntrustedDir(filepath.Join(base, path), 2, 0o755); !errors.Is(err, hostfs.ErrNotRegular) {
			t.Errorf("%s: error %v, want ErrNotRegular", path, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(base, "elsewhere/c")); err == nil {
		t.Error("a directory was made behind a link")
	}
}

// An open UntrustedDir stays the same directory when another directory gets its name.
func TestOpenUntrustedDir(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, d := range []string{"a", "b"} {
		must(t, os.Mkdir(filepath.Join(base, d), 0o755), os.WriteFile(filepath.Join(base, d, "f"), []byte(d), 0o644))
	}
	dir, err := hostfs.OpenUntrustedDir(filepath.Join(base, "a"), 1)
	must(t, err)
	defer dir.Close()
	must(t, os.Rename(filepath.Join(base, "a"), filepath.Join(base, "c")), os.Symlink("b", filepath.Join(base, "a")))
	must(t, dir.Remove("f"))
	if _, err := os.Stat(filepath.Join(base, "b/f")); err != nil {
		t.Error("a file of another directory was removed")
	}
	if _, err := hostfs.OpenUntrustedDir(filepath.Join(base, "a"), 1); !errors.Is(err, hostfs.ErrNotRegular) {
		t.Errorf("a link to a directory: %v", err)
	}
	for _, name := range []string{"..", ".", "", "x/y", "/etc/passwd"} {
		if _, err := dir.Open(name); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
	must(t, os.WriteFile(filepath.Join(base, "c/g"), []byte("first"), 0o600), os.WriteFile(filepath.Join(base, "b/g"), nil, 0o600))
	must(t, dir.Each(func(e fs.DirEntry) error {
		if info, err := e.Info(); err != nil || e.Name() != "g" || !e.Type().IsRegular() || info.Size() != 5 {
			t.Errorf("an entry is %v (%v), want that of the directory that was opened", e, err)
		}
		return nil
	}), dir.Remove("g"))
	seen := 0
	plant.LinkFarm(t, filepath.Join(base, "c"), func(i int) string { return fmt.Sprint(i, ".log") })
	must(t, dir.Each(func(fs.DirEntry) error { seen++; return nil }))
	if seen != plant.Farm {
		t.Errorf("%d entries, want %d", seen, plant.Farm)
	}
}

// If a link has replaced a log directory, or a directory above it, the agent does not walk the link's target.
func TestUntrustedDiskUsage(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(base, "pod/c"), 0o755), os.WriteFile(filepath.Join(base, "pod/c/0.log"), make([]byte, 1<<20), 0o644),
		os.Symlink("pod", filepath.Join(base, "linked")), os.Symlink("c", filepath.Join(base, "pod/linked")))
	bytes, inodes, err := hostfs.Host{}.UntrustedDiskUsage(t.Context(), filepath.Join(base, "pod/c"), 2)
	if err != nil || bytes < 1<<20 || inodes != 2 {
		t.Errorf("%d bytes, %d inodes, %v", bytes, inodes, err)
	}
	for path, want := range map[string]error{
		"linked/c": hostfs.ErrNotRegular, "pod/linked": hostfs.ErrNotRegular, "pod/c/0.log": hostfs.ErrNotRegular, "gone/c": fs.ErrNotExist,
	} {
		if bytes, _, err := (hostfs.Host{}).UntrustedDiskUsage(t.Context(), filepath.Join(base, path), 2); !errors.Is(err, want) || bytes != 0 {
			t.Errorf("%s: %d bytes, error %v, want %v", path, bytes, err, want)
		}
	}
	if _, _, err := (hostfs.Host{}).UntrustedDiskUsage(t.Context(), "", 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no path: %v", err)
	}
}

func TestUntrustedFS(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root := filepath.Join(base, "log")
	must(t,
		os.MkdirAll(filepath.Join(root, "pods"), 0o755), os.WriteFile(filepath.Join(base, "secret"), []byte(plant.Secret), 0o644),
		os.WriteFile(filepath.Join(root, "syslog"), []byte("text"), 0o644), os.Symlink("../syslog", filepath.Join(root, "pods/inside")),
		os.Symlink("../secret", filepath.Join(root, "out")), os.Symlink("/etc", filepath.Join(root, "etc")), unix.Mkfifo(filepath.Join(root, "pipe"), 0o666),
	)
	files := hostfs.UntrustedFS(root)
	for name, want := range map[string]error{
		"syslog": nil, "pods": nil, ".": nil, "pods/inside": nil, "out": hostfs.ErrEscapes, "etc/passwd": hostfs.ErrEscapes,
		"pipe": hostfs.ErrNotRegular, "gone": fs.ErrNotExist, "../secret": fs.ErrInvalid,
	} {
		plant.Returns(t, func() {
			f, err := files.Open(name)
			if !errors.Is(err, want) {
				t.Errorf("%s: error %v, want %v", name, err, want)
			}
			if err == nil {
				must(t, f.Close())
			}
		})
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil || len(entries) != 5 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}
