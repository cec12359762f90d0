package push

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// brokenDisk mounts a small file system on dir. fill leaves no room on it until mend is called; readOnly makes it refuse writes
// until readWrite is called.
func brokenDisk(t *testing.T, dir string) (fill, mend, readOnly, readWrite func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("this test mounts a file system: it needs root")
		}
		t.Skip("mounting a file system needs root")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	fill = func() {
		f, err := os.Create(filler)
		must(err)
		for block := make([]byte, 4096); err == nil; { // write until no block is free
			_, err = f.Write(block)
		}
		_ = f.Close()
	}
	mend = func() { must(os.Remove(filler)) }
	readOnly = func() { must(unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")) }
	readWrite = func() { must(unix.Mount("", dir, "", unix.MS_REMOUNT, "")) }
	return fill, mend, readOnly, readWrite
}

// While the disk is full or read-only, a push is refused, and the pods that were pushed before stay, also for the next
// agent. When the disk works again, pushes and deletions succeed.
func TestPushOnABrokenDisk(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(fill, mend, readOnly, readWrite func()) (breaks, heals func()){
		"full":      func(fill, mend, _, _ func()) (func(), func()) { return fill, mend },
		"read-only": func(_, _, readOnly, readWrite func()) (func(), func()) { return readOnly, readWrite },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			breaks, heals := of(brokenDisk(t, dir))
			b := newBench(t, dir)
			b.push(podOf("a:1"))
			b.pods.take()
			breaks()
			if code, a := b.send("POST", "/pods", strings.ReplaceAll(podOf("a:1"), "web", "other")); code < 500 {
				t.Errorf("a push is answered %d %+v, want a refusal", code, a)
			}
			if got := b.pods.take(); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "other") }) {
				t.Errorf("a pod that could not be kept is wanted: %v", got)
			}
			heals()
			b.is("push on the mended disk", b.push(strings.ReplaceAll(podOf("a:1"), "web", "other")), "other created")
			if code, _ := b.send("DELETE", "/pods/default/other", ""); code >= 300 {
				t.Errorf("a deletion on the mended disk is answered %d", code)
			}
			if got := newBench(t, dir).pods.take(); !slices.Contains(got, "has web") {
				t.Errorf("after a restart there is %q, without the pod that was pushed before the disk broke", got)
			}
		})
	}
}
