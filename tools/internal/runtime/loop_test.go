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

// fakeLosetup puts a program losetup first in PATH, which runs the script for each call. The file asked in dir gets its arguments.
func fakeLosetup(t *testing.T, dir, script string) (asked func() string) {
	t.Helper()
	bin := t.TempDir()
	text := "#!/bin/sh\ncd '" + dir + "' || exit\necho \"$@\" >>'" + bin + "/asked'\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(bin, "losetup"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return func() string {
		data, err := os.ReadFile(filepath.Join(bin, "asked"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

// A directory that goes away meanwhile does not keep the devices of the other images attached.
func TestDetachLoopsGoesOn(t *testing.T) {
	dir := t.TempDir()
	for _, image := range []string{"a.img", "b/b.img", "c.img"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, image)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, image), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asked := fakeLosetup(t, dir, "rm -rf b")
	if err := DetachLoops(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if got := asked(); !strings.Contains(got, "a.img") || !strings.Contains(got, "c.img") {
		t.Errorf("asked about:\n%s", got)
	}
}

// A device that is in use stays, although losetup says nothing, and that is an error.
func TestDetachLoopsOfADeviceInUse(t *testing.T) {
	dir := t.TempDir()
	for _, image := range []string{"a.img", "b.img"} {
		if err := os.WriteFile(filepath.Join(dir, image), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asked := fakeLosetup(t, dir, `case "$*" in *a.img*) echo /dev/loop7;; esac`)
	err := DetachLoops(t.Context(), dir)
	if want := "detach /dev/loop7 from " + filepath.Join(dir, "a.img") + ": still in use"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if got := asked(); !strings.Contains(got, "--detach /dev/loop7\n") || !strings.Contains(got, "b.img") {
		t.Errorf("asked:\n%s", got)
	}
}
