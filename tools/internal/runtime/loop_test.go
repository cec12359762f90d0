package runtime

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The devices of images below a directory are detached, and those beside it are not.
func TestDetachLoops(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	device := func(image string) string {
		out, err := exec.Command("losetup", "--associated", image, "--noheadings", "--output", "NAME").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	below, beside := filepath.Join(dir, "volumes", "disk", "a.img"), filepath.Join(dir, "volumes-of-others", "a.img")
	for _, image := range []string{below, beside} {
		if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("losetup", "--find", image).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { // a test that fails leaves no device
			if left := device(image); left != "" {
				_ = exec.Command("losetup", "--detach", left).Run()
			}
		})
	}
	for range 2 {
		if err := DetachLoops(t.Context(), filepath.Join(dir, "volumes")); err != nil {
			t.Error(err)
		}
		if device(below) != "" || device(beside) == "" {
			t.Errorf("below the directory there is %q, beside it %q", device(below), device(beside))
		}
	}
	if err := DetachLoops(t.Context(), dir); err != nil || device(beside) != "" {
		t.Errorf("left %q, %v", device(beside), err)
	}
	if err := DetachLoops(t.Context(), filepath.Join(dir, "nothing")); err != nil {
		t.Errorf("where there is no directory: %v", err)
	}
}
