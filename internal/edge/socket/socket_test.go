package socket_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/socket"
)

// The control socket is open to its owner only, belongs to one agent at a time, and is replaced if its agent was killed.
func TestListen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dir", "wherry.sock")
	l, err := socket.Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600: %v", info.Mode().Perm(), err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory %v, want 0700: %v", dir.Mode().Perm(), err)
	}
	if _, err := socket.Listen(path, ""); !errors.Is(err, socket.ErrInUse) {
		t.Errorf("a second agent: %v, want %v", err, socket.ErrInUse)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	if l, err = socket.Listen(path, ""); err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	_ = l.Close()
}

// Listen sets the mode of the private directory to 0700, and refuses a link in its place.
func TestPrivateDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for private, want := range map[string]os.FileMode{"": 0o755, dir: 0o700} {
		l, err := socket.Listen(filepath.Join(dir, "wherry.sock"), private)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if st, err := os.Stat(dir); err != nil || private == dir && st.Mode().Perm() != want {
			t.Errorf("private %q: mode %v, want %v (%v)", private, st.Mode().Perm(), want, err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if l, err := socket.Listen(filepath.Join(link, "wherry.sock"), link); err == nil {
		_ = l.Close()
		t.Error("a link was accepted as the private directory")
	}
}

// ListenUnused replaces a socket that nobody serves, and neither one that another program serves nor a file of another kind.
func TestListenUnused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	served, left, file := filepath.Join(dir, "served"), filepath.Join(dir, "left"), filepath.Join(dir, "file")
	for _, path := range []string{served, left} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		defer l.Close()
		if path == left {
			_ = l.Close()
		}
	}
	if err := os.WriteFile(file, []byte("keep me"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.ListenUnused(served); !errors.Is(err, socket.ErrAnswers) {
		t.Errorf("a socket that is served: %v, want %v", err, socket.ErrAnswers)
	}
	if c, err := net.Dial("unix", served); err != nil {
		t.Errorf("the socket that is served has gone: %v", err)
	} else {
		_ = c.Close()
	}
	if _, err := socket.ListenUnused(file); err == nil {
		t.Error("a file was replaced by ListenUnused")
	}
	if _, err := socket.Listen(file, ""); err == nil {
		t.Error("a file was replaced by Listen")
	}
	if _, err := os.Lstat(file + ".lock"); err == nil {
		t.Error("a lock was made beside a file that is no socket")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "keep me" {
		t.Errorf("the file has %q: %v", text, err)
	}
	for _, path := range []string{left, filepath.Join(dir, "new")} {
		l, err := socket.ListenUnused(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, want 0600 (%v)", path, st.Mode().Perm(), err)
		}
		_ = l.Close()
	}
}
