package podctl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
