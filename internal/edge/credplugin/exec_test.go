package credplugin

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A plugin may leave a child behind that keeps its output open. The answer counts at once, and the child is killed.
func TestAChildThatStays(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "")
	s.plugin("p", "exec 9> "+s.dir+"/alive\nsleep 300 &\n"+answering(`"cacheKeyType":"Image",`+auth))
	if err := unix.Mkfifo(filepath.Join(s.dir, "alive"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { // reading ends when no process has the pipe open for writing any more: the plugin and its child are gone
		_, err := os.ReadFile(filepath.Join(s.dir, "alive"))
		gone <- err
	}()
	got, err := s.load().Credentials(t.Context(), nil, "a.example.com/x")
	if err != nil || len(got) != 1 {
		t.Fatalf("%d credentials, %v, want one", len(got), err)
	}
	select {
	case err := <-gone:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the child of the plugin was not killed")
	}
}

// A helper with a session of its own is not killed. The plugin's answer counts, although the helper keeps the plugin's output open.
func TestAHelperThatIsToStay(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "")
	helper := filepath.Join(s.dir, "helper")
	s.plugin("p", "setsid sh -c 'echo $$ > "+helper+"; exec sleep 300' &\nwhile [ ! -s "+helper+" ]; do sleep 0.05; done\n"+answering(`"cacheKeyType":"Image",`+auth))
	if got, err := s.load().Credentials(t.Context(), nil, "a.example.com/x"); err != nil || len(got) != 1 {
		t.Errorf("%d credentials, %v, want one", len(got), err)
	}
	raw, err := os.ReadFile(helper)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("the helper is gone: %v", err)
	}
}
