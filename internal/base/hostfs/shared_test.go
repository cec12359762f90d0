package hostfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// On a machine whose root mount is private, MakeShared makes a directory a shared mount. A slave of that mount sees what is
// mounted below it before and afterwards. The test runs itself again in a mount namespace of its own.
func TestMakeShared(t *testing.T) {
	needRoot(t)
	if dir := os.Getenv("HOSTFS_PRIVATE_DIR"); dir != "" {
		sharedInPrivateNamespace(t, dir)
		return
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("unshare is missing: no mount namespace of its own")
	}
	cmd := exec.Command(unshare, "-m", "--propagation", "private", os.Args[0], "-test.run=^TestMakeShared$", "-test.v") //nolint:gosec // the command is this test binary
	cmd.Env = append(os.Environ(), "HOSTFS_PRIVATE_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "propagates") {
		t.Errorf("%v\n%s", err, out)
	}
}

func sharedInPrivateNamespace(t *testing.T, dir string) {
	h, root := Host{}, filepath.Join(dir, "root")
	for _, d := range []string{"root/before", "root/volume", "container"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	must(t, h.Mount("tmpfs", filepath.Join(root, "before"), "tmpfs", ""))
	must(t, os.WriteFile(filepath.Join(root, "before/file"), nil, 0o644))
	for again, want := range []bool{true, false} {
		made, err := h.MakeShared(root)
		must(t, err)
		if made != want {
			t.Fatalf("call %d: made %t", again, made)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "before/file")); err != nil {
		t.Errorf("what was mounted below the directory is hidden: %v", err)
	}
	// The test now does what a runtime does for HostToContainer.
	container := filepath.Join(dir, "container")
	must(t, unix.Mount(root, container, "", unix.MS_BIND|unix.MS_REC, ""))
	must(t, unix.Mount("", container, "", unix.MS_SLAVE|unix.MS_REC, ""))
	for _, below := range []string{"volume", "before"} {
		must(t, h.Mount("tmpfs", filepath.Join(root, below), "tmpfs", ""))
		must(t, os.WriteFile(filepath.Join(root, below, "late"), nil, 0o644))
		if _, err := os.Stat(filepath.Join(container, below, "late")); err != nil {
			t.Errorf("a mount does not reach the container: %v", err)
		}
	}
	// A private mount point becomes shared itself.
	alone := filepath.Join(dir, "alone")
	must(t, os.Mkdir(alone, 0o755))
	must(t, h.Mount("tmpfs", alone, "tmpfs", ""))
	if made, err := h.MakeShared(alone); err != nil || !made {
		t.Errorf("a mount point: %t, %v", made, err)
	}
	if infos, err := h.MountPoints(alone); err != nil || len(infos) != 1 {
		t.Errorf("a mount point is mounted again: %q, %v", infos, err)
	}
	// TakeBackShared unmounts a directory that MakeShared has mounted on itself. It leaves other mounts.
	own := filepath.Join(dir, "own")
	must(t, os.Mkdir(own, 0o755))
	must(t, os.WriteFile(filepath.Join(own, "file"), nil, 0o644))
	if made, err := h.MakeShared(own); err != nil || !made {
		t.Errorf("a directory: %t, %v", made, err)
	}
	for d, want := range map[string]int{own: 0, alone: 1, container: 1} {
		must(t, h.TakeBackShared(d))
		if infos, err := h.MountPoints(d); err != nil || len(infos) < want || want == 0 && len(infos) > 0 {
			t.Errorf("taken back: %q, %v", infos, err)
		}
	}
	if _, err := os.Stat(filepath.Join(own, "file")); err != nil {
		t.Errorf("what was in the directory is gone: %v", err)
	}
	if !t.Failed() {
		t.Log("it propagates")
	}
}
