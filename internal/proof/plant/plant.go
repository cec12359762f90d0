package plant

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Secret is the content of the file to which the links among Things lead. No reader may get it through such a link.
const Secret = "2026-01-02T03:04:05Z stdout F the secret of another pod\n"

// Thing is a directory entry that is not a regular file.
type Thing struct {
	Name string
	// Plant creates the entry at path.
	Plant func(t testing.TB, path string)
}

// Things returns everything that a container may put in the place of a regular file: a link, a pipe, a device and so on.
func Things() []Thing {
	return []Thing{
		{"link", func(t testing.TB, path string) {
			secret := filepath.Join(t.TempDir(), "secret")
			must(t, os.WriteFile(secret, []byte(Secret), 0o600))
			must(t, os.Symlink(secret, path))
		}},
		{"link to a device", func(t testing.TB, path string) { must(t, os.Symlink("/dev/zero", path)) }},
		{"pipe", func(t testing.TB, path string) { must(t, unix.Mkfifo(path, 0o666)) }},
		{"directory", func(t testing.TB, path string) { must(t, os.Mkdir(path, 0o777)) }},
		{"socket", plantSocket},
		{"device", func(t testing.TB, path string) {
			NeedRoot(t)
			must(t, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // /dev/zero
		}},
	}
}

func plantSocket(t testing.TB, path string) {
	short, err := os.MkdirTemp("", "s") // the path of a Unix socket has at most 107 bytes, so the directory has a short name
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(short) })
	l, err := net.Listen("unix", filepath.Join(short, "s"))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	must(t, os.Rename(filepath.Join(short, "s"), path))
}

// Sparse creates a file of 4 TiB that uses no space on disk.
func Sparse(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	must(t, f.Close())
	Grow(t, path)
}

// Grow extends a file to 4 TiB, as `truncate -s 4T` does in a container.
func Grow(t testing.TB, path string) {
	t.Helper()
	must(t, os.Truncate(path, 4<<40))
}

// Farm is the number of links that LinkFarm creates. It is larger than the number of entries that the node lists at once.
const Farm = 600

// LinkFarm fills a directory with links to a file beside it, and returns the path of that file. The function name returns the name of the
// i-th link.
func LinkFarm(t testing.TB, dir string, name func(i int) string) (secret string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o777))
	secret = dir + ".secret"
	must(t, os.WriteFile(secret, []byte(Secret), 0o600))
	for i := range Farm {
		must(t, os.Symlink("../"+filepath.Base(secret), filepath.Join(dir, name(i))))
	}
	return secret
}

// Allocates fails the test if f allocates more than limit bytes.
func Allocates(t testing.TB, limit uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > limit {
		t.Errorf("%d bytes were allocated, more than %d", n, limit)
	}
}

// Returns fails the test if f does not return within a time that is much longer than f needs on a slow machine.
func Returns(t testing.TB, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		stacks := make([]byte, 1<<16)
		t.Fatalf("it hangs:\n%s", strings.TrimSpace(string(stacks[:runtime.Stack(stacks, true)])))
	}
}

// NeedRoot skips the test if it does not run as root. In CI it fails the test instead.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root: to make devices")
	}
	t.Skip("needs root: to make devices")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
