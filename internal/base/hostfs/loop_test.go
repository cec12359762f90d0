package hostfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// A second AttachLoop for the same file, by a path with a symbolic link, attaches no second loop device. DetachLoop detaches only the
// devices of its own path.
func TestLoopDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	dir := t.TempDir()
	h := hostfs.Host{}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, path := range []string{a, b} {
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.AttachLoop(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.DetachLoop(path) })
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := h.AttachLoop(filepath.Join(link, "a")); err != nil {
		t.Fatal(err)
	}
	loops := hostfs.LoopsOf(t, a)
	if len(loops) != 1 {
		t.Fatalf("attached to a: %v", loops)
	}
	if is, err := h.IsBlockDevice("/dev/" + loops[0]); !is || err != nil {
		t.Errorf("a loop device is a block device: %v, %v", is, err)
	}
	for _, path := range []string{a, dir, "/dev/null"} {
		if is, err := h.IsBlockDevice(path); is || err != nil {
			t.Errorf("%s is a block device: %v, %v", path, is, err)
		}
	}
	if err := h.DetachLoop(a); err != nil {
		t.Fatal(err)
	}
	if err := h.DetachLoop(a); err != nil {
		t.Errorf("detached twice: %v", err)
	}
	if a, b := hostfs.LoopsOf(t, a), hostfs.LoopsOf(t, b); len(a) != 0 || len(b) != 1 {
		t.Errorf("attached to a: %v, to b: %v", a, b)
	}
	if err := h.AttachLoop(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a path that does not exist")
	}
}
