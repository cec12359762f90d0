package hostfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("needs root: mounts")
	default:
		t.Skip("needs root: mounts")
	}
}

// ways runs f twice: with a Host that opens paths with openat2, and with one that resolves paths itself, as on old kernels.
func ways(t *testing.T, f func(t *testing.T, h Host)) {
	t.Helper()
	for name, h := range map[string]Host{"openat2": {}, "walk": {noOpenat2: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, h)
		})
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func sameFile(t *testing.T, f *os.File, path string) bool {
	t.Helper()
	a, err := f.Stat()
	must(t, err)
	b, err := os.Stat(path)
	must(t, err)
	return os.SameFile(a, b)
}

func TestOpenBeneath(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		root := filepath.Join(base, "root")
		must(t,
			os.MkdirAll(filepath.Join(root, "a/b"), 0o755),
			os.WriteFile(filepath.Join(root, "a/file"), nil, 0o644),
			os.WriteFile(filepath.Join(base, "secret"), nil, 0o644),
			os.Symlink("a/b", filepath.Join(root, "inside")),
			os.Symlink("../a/file", filepath.Join(root, "a/updown")),
			os.Symlink("../secret", filepath.Join(root, "out")),
			os.Symlink("../../root/../secret", filepath.Join(root, "a/outside")),
			os.Symlink("/etc/passwd", filepath.Join(root, "absolute")),
			os.Symlink(filepath.Join(root, "a"), filepath.Join(root, "absolute-inside")),
			os.Symlink("nowhere", filepath.Join(root, "dangling")),
			os.Symlink("loop", filepath.Join(root, "loop")),
			os.Symlink(root, filepath.Join(base, "root-link")),
		)
		for _, tt := range []struct {
			path string
			want string // the expected path below root
			err  error
		}{
			{"a/b", "a/b", nil},
			{"a/file", "a/file", nil},
			{"./a//b/", "a/b", nil},
			{"inside", "a/b", nil},
			{"a/b/../file", "a/file", nil},
			{"a/no", "", unix.ENOENT},
			{"dangling", "", unix.ENOENT},
			{"loop", "", unix.ELOOP},
			{"a/file/x", "", unix.ENOTDIR},
			{"out", "", ErrEscapes},
			{"a/outside", "", ErrEscapes},
			{"a/updown", "a/file", nil}, // the link leads upwards, but stays inside
			{"absolute", "", ErrEscapes},
			{"absolute-inside", "", ErrEscapes},
			{"../secret", "", ErrEscapes},
			{"/etc/passwd", "", ErrEscapes},
			{"a/../../secret", "", ErrEscapes},
		} {
			f, err := h.OpenBeneath(filepath.Join(base, "root-link"), tt.path)
			if tt.err != nil {
				if !errors.Is(err, tt.err) {
					t.Errorf("open %q: %v, want %v", tt.path, err, tt.err)
				}
				continue
			}
			if err != nil {
				t.Errorf("open %q: %v", tt.path, err)
				continue
			}
			if !sameFile(t, f, filepath.Join(root, tt.want)) {
				t.Errorf("open %q: another file than %s", tt.path, tt.want)
			}
			f.Close()
		}
	})
}

func TestMkdirBeneath(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		root := filepath.Join(base, "root")
		must(t,
			os.MkdirAll(filepath.Join(root, "have"), 0o700),
			os.Symlink("have", filepath.Join(root, "inside")),
			os.Symlink("../evil", filepath.Join(root, "out")),
			os.Symlink("nowhere", filepath.Join(root, "dangling")),
			os.WriteFile(filepath.Join(root, "file"), nil, 0o644),
		)
		f, err := h.MkdirBeneath(root, "have/new/deep", fs.ModeSetgid|0o777)
		must(t, err)
		if !sameFile(t, f, filepath.Join(root, "have/new/deep")) {
			t.Error("another directory")
		}
		f.Close()
		for path, want := range map[string]fs.FileMode{"have": 0o700, "have/new": fs.ModeSetgid | 0o777, "have/new/deep": fs.ModeSetgid | 0o777} {
			if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode() != want|fs.ModeDir {
				t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
			}
		}
		if f, err := h.MkdirBeneath(root, "inside/more", 0o755); err != nil || !sameFile(t, f, filepath.Join(root, "have/more")) {
			t.Errorf("through a link that stays inside: %v", err)
		}
		for _, bad := range []string{"out/x", "out", "dangling/x", "dangling", "../x", "file/x"} {
			if _, err := h.MkdirBeneath(root, bad, 0o755); err == nil {
				t.Errorf("made %q", bad)
			}
		}
		if left, _ := os.ReadDir(base); len(left) != 1 {
			t.Errorf("something was made outside: %v", left)
		}
	})
}

// A container swaps a directory of its volume for a link to the host, as fast as it can, while the agent opens and
// makes paths through it. No descriptor may ever belong to the host's tree, and nothing may appear there.
func TestOpenBeneathUnderAttack(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		root, host := filepath.Join(base, "root"), filepath.Join(base, "host")
		must(t, os.MkdirAll(filepath.Join(root, "x/d"), 0o755), os.MkdirAll(filepath.Join(host, "d"), 0o755), os.Symlink("../host", filepath.Join(root, "y")))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var swaps atomic.Int64
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, "x"), unix.AT_FDCWD, filepath.Join(root, "y"), unix.RENAME_EXCHANGE)
				swaps.Add(1)
			}
		}()
		opened, refused := 0, 0
		late := time.Now().Add(2 * time.Minute)
		for i := 0; i < 3000 || (opened == 0 || swaps.Load() < 2) && time.Now().Before(late); i++ {
			if i >= 3000 {
				<-time.After(time.Millisecond) // the swapping goroutine is slow, so give it time
			}
			var f *os.File
			var err error
			if i%2 == 0 {
				f, err = h.OpenBeneath(root, "x/d")
			} else {
				f, err = h.MkdirBeneath(root, fmt.Sprintf("x/n%d", i), 0o755)
			}
			if err != nil {
				refused++
				continue
			}
			opened++
			name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			f.Close()
			if err != nil || filepath.Dir(filepath.Dir(name)) != root {
				t.Fatalf("opened %s (%v)", name, err)
			}
		}
		stop()
		<-ended
		left, err := os.ReadDir(host)
		if err != nil || len(left) != 1 {
			t.Errorf("the host's directory has %v, %v", left, err)
		}
		if opened == 0 || swaps.Load() < 2 {
			t.Errorf("no attack: %d opened, %d refused, %d swaps", opened, refused, swaps.Load())
		}
	})
}

func TestRemoveTree(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
		must(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755), os.Mkdir(outside, 0o755),
			os.WriteFile(filepath.Join(outside, "precious"), nil, 0o644),
			os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink(outside, filepath.Join(dir, "a/link")))
		for i := range 3000 { // more entries than one read of the directory returns
			must(t, os.WriteFile(filepath.Join(dir, "a/b", fmt.Sprint(i)), nil, 0o000))
		}
		must(t, h.RemoveTree(t.Context(), dir))
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
		if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
			t.Errorf("deleted through a link: %v", err)
		}
		must(t, h.RemoveTree(t.Context(), dir), h.RemoveTree(t.Context(), filepath.Join(base, "no/such")))
		must(t, os.Symlink(outside, dir), h.RemoveTree(t.Context(), dir))
		if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
			t.Errorf("deleted through a link at the root: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.RemoveTree(gone, outside); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestRemoveTreeEntersNoMount(t *testing.T) {
	t.Parallel()
	needRoot(t)
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
		must(t, os.MkdirAll(filepath.Join(dir, "a/bind"), 0o755), os.MkdirAll(filepath.Join(dir, "tmpfs"), 0o755), os.Mkdir(outside, 0o755),
			os.WriteFile(filepath.Join(outside, "precious"), nil, 0o644), os.WriteFile(filepath.Join(dir, "boundfile"), nil, 0o644))
		mount := func(source, target string) { // a bind mount of the same file system, so the device number is the same
			t.Helper()
			must(t, unix.Mount(source, target, "", unix.MS_BIND, ""))
			t.Cleanup(func() { _ = h.Unmount(target) })
		}
		mount(outside, filepath.Join(dir, "a/bind"))
		mount(filepath.Join(outside, "precious"), filepath.Join(dir, "boundfile"))
		mountTmpfs(t, h, filepath.Join(dir, "tmpfs"), 0)
		t.Cleanup(func() { _ = h.Unmount(filepath.Join(dir, "tmpfs")) })
		must(t, os.WriteFile(filepath.Join(dir, "tmpfs/precious"), nil, 0o644))

		if err := h.RemoveTree(t.Context(), dir); !errors.Is(err, ErrMounted) {
			t.Errorf("error %v, want ErrMounted", err)
		}
		for _, path := range []string{outside + "/precious", dir + "/tmpfs/precious", dir + "/boundfile"} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("deleted through a mount: %v", err)
			}
		}
		points, err := h.MountPoints(dir)
		if err != nil || len(points) != 3 {
			t.Errorf("mount points %v, %v", points, err)
		}
		for _, p := range points {
			must(t, h.Unmount(p), h.Unmount(p)) // the second call finds nothing mounted, which is no error
		}
		must(t, h.RemoveTree(t.Context(), dir))
	})
}

func TestUnmountDetachesABusyMount(t *testing.T) {
	t.Parallel()
	needRoot(t)
	h, dir := Host{}, t.TempDir()
	mountTmpfs(t, h, dir, 0)
	busy, err := os.Create(filepath.Join(dir, "open"))
	must(t, err)
	defer busy.Close()
	must(t, h.Unmount(dir))
	if points, err := h.MountPoints(dir); err != nil || len(points) != 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
	if _, err := busy.WriteString("still usable"); err != nil {
		t.Error(err)
	}
}

func TestBindMountsTheFileNotTheName(t *testing.T) {
	t.Parallel()
	needRoot(t)
	h, base := Host{}, t.TempDir()
	root, target := filepath.Join(base, "root"), filepath.Join(base, "target")
	must(t, os.MkdirAll(filepath.Join(root, "d"), 0o755), os.Mkdir(target, 0o755), os.WriteFile(filepath.Join(root, "d/mine"), nil, 0o644))
	f, err := h.OpenBeneath(root, "d")
	must(t, err)
	defer f.Close()
	must(t, os.Rename(filepath.Join(root, "d"), filepath.Join(root, "moved")), os.Symlink("/", filepath.Join(root, "d")))
	must(t, h.Bind(f, target))
	defer h.Unmount(target)
	if _, err := os.Stat(filepath.Join(target, "mine")); err != nil {
		t.Error(err)
	}
	if mounted, err := h.IsMountPoint(target); err != nil || mounted {
		t.Errorf("IsMountPoint of a bind mount of the same file system: %t, %v; it promises false", mounted, err)
	}
}

func TestDiskUsage(t *testing.T) {
	t.Parallel()
	h, dir := Host{}, t.TempDir()
	block := make([]byte, 64<<10)
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755), os.WriteFile(filepath.Join(dir, "a/b/one"), block, 0o644),
		os.Link(filepath.Join(dir, "a/b/one"), filepath.Join(dir, "same")), os.Symlink("/usr", filepath.Join(dir, "link")))
	before, inodes, err := h.DiskUsage(t.Context(), dir)
	must(t, err)
	if inodes != 5 { // dir, a, b, the file one (which is also same), link
		t.Errorf("%d inodes, want 5", inodes)
	}
	must(t, os.WriteFile(filepath.Join(dir, "two"), block, 0o644))
	after, _, err := h.DiskUsage(t.Context(), dir)
	must(t, err)
	if after-before != 64<<10 {
		t.Errorf("a file of 64 KiB added %d bytes", after-before)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := h.DiskUsage(gone, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	capacity, available, n, free, err := h.DiskSpace(dir)
	if err != nil || capacity == 0 || available > capacity || free > n {
		t.Errorf("space %d/%d, inodes %d/%d, %v", available, capacity, free, n, err)
	}
}
