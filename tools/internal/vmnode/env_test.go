package vmnode

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTwoDirectoriesHaveTwoNamespaces(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, dir := range []string{"/a/.wherry/vm", "/b/.wherry/vm", "/a/.wherry/vm2"} {
		e, err := New(Options{Checkout: "/x", Dir: dir, Cache: "/c"})
		if err != nil {
			t.Fatal(err)
		}
		name := e.namespace()
		if seen[name] || !strings.HasPrefix(name, "wherry-vm-") {
			t.Errorf("%s has the namespace %s", dir, name)
		}
		seen[name] = true
		if line := strings.Join(e.inside("kubectl", "get"), " "); line != "nsenter --net=/run/netns/"+name+" -- kubectl get" {
			t.Errorf("inside of it the command line is %s", line)
		}
	}
}

// Down needs only the files on disk: it works without any files, and with the files that a crash leaves.
func TestDownOfWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e, err := New(Options{Checkout: "/x", Dir: filepath.Join(t.TempDir(), "state", "vm"), Cache: "/c", Progress: &out})
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []bool{false, true} {
		if left {
			if err := os.MkdirAll(e.path("guest"), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"guest/console.log": "boot", "guest/qemu.pid": "999999999 1", "controlplane.pid": "garbage"} {
				if err := os.WriteFile(e.path(name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := e.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Dir(e.Dir))
		if err != nil || len(entries) != 1 || entries[0].Name() != "logs" {
			t.Errorf("beside the logs there is %v (%v)", entries, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(filepath.Dir(e.Dir), "logs", "vm-console.log")); err != nil || string(text) != "boot" {
		t.Errorf("the console's log is %q (%v)", text, err)
	}
}
