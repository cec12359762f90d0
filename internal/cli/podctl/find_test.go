package podctl

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/edge/socket"
)

// findSocket finds the socket of a running agent. If there is none, the error says what to do.
func TestFindSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wherry.sock")
	l, err := socket.Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := findSocket(t.Context(), path); err != nil || got != path {
		t.Errorf("found %q, %v", got, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	var none noAgent
	if _, err := findSocket(t.Context(), path); !errors.As(err, &none) || !strings.Contains(err.Error(), "no agent listens on "+path+": start one with \"wherry run\" or \"wherry kubelet\"") {
		t.Errorf("without an agent: %v", err)
	}
}

// The sockets of fleets and of CRI proxies are in the same directory as those of agents. Nobody takes them for an agent.
func TestAgentSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"cri-proxy.sock", "fleet-fleet.sock", "fleet-a.b.sock", "other.sock", "wherry-0123456789ab.sock", "wherry.sock", "wherry.sock.lock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, path := range agentSockets(dir) {
		names = append(names, filepath.Base(path))
	}
	if want := []string{"wherry-0123456789ab.sock", "wherry.sock"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// A directory that the user may not enter, such as /var/lib/kubelet of another agent, does not keep wherry run from starting an agent. A socket
// that is there, or that the user has asked for, is another user's.
func TestSocketsOfOtherUsers(t *testing.T) {
	t.Parallel()
	open, err := os.MkdirTemp("", "wherry") // the test's own directory is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	closed, visible := filepath.Join(open, "closed"), filepath.Join(open, "visible.sock")
	l, err := socket.Listen(visible, "")
	if err == nil {
		err = errors.Join(os.Chmod(open, 0o755), os.Mkdir(closed, 0o000))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	answers := func(asked bool, candidates ...string) (err error) {
		done := make(chan struct{})
		go func() { // in a thread that has the rights of nobody for files, and that ends with this goroutine
			defer close(done)
			runtime.LockOSThread()
			if os.Geteuid() == 0 {
				if err = unix.Setfsuid(65534); err != nil {
					return
				}
			}
			_, err = answering(t.Context(), candidates, asked)
		}()
		<-done
		return err
	}
	absent, hidden := filepath.Join(open, "absent.sock"), filepath.Join(closed, "wherry.sock")
	if err := answers(false, absent, hidden); !errors.As(err, new(noAgent)) {
		t.Errorf("a directory that is closed: %v", err)
	}
	if err := answers(true, hidden); err == nil || !strings.Contains(err.Error(), hidden+" belongs to another user") {
		t.Errorf("a directory that is closed, with a socket that the user wants: %v", err)
	}
	if os.Geteuid() != 0 {
		return // the other socket is this user's own
	}
	if err := answers(false, absent, visible); err == nil || !strings.Contains(err.Error(), visible+" belongs to another user") {
		t.Errorf("a socket of another user: %v", err)
	}
}

// Errors in manifests name the file and the line, before anything is pushed.
func TestReadManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml":       "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n",
		"b.json":       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"k":"v"}}`,
		".hidden.yaml": "nonsense",
		"README.md":    "nonsense",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := readManifests([]string{dir, "-"}, strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {name: s}\nspec: {containers: [{name: c, image: i}]}\n"))
	if err != nil || m.pods != 2 || strings.Count(string(m.all), "\n---\n") != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    imagee: i\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readManifests([]string{dir}, nil); err == nil || !strings.Contains(err.Error(), bad+":7: document 1, Pod default/a: spec.containers[0].imagee") {
		t.Errorf("a bad one: %v", err)
	}
	if _, err := readManifests([]string{filepath.Join(dir, "absent")}, nil); err == nil {
		t.Error("a missing file gave no error")
	}
}
