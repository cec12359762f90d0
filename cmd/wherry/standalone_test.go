package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/config"
	"github.com/wherry-node/wherry/internal/socket"
)

// The socket on which an agent listens is found; where none does, the error says what to do.
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

func TestControlSocketPath(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "wherry.yaml")
		if err := os.WriteFile(path, []byte("apiVersion: wherry.dev/v1alpha1\nkind: WherryConfiguration\ncontrolSocket: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	on, off := file("{enabled: true}"), file("{enabled: false}")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, config.SystemSocket},
		{[]string{"--kubeconfig=/k"}, ""}, // whoever opens it may do everything on the node
		{[]string{"--kubeconfig=/k", "--push-socket=/s"}, "/s"},
		{[]string{"--kubeconfig=/k", "--wherry-config=" + on}, config.SystemSocket},
		{[]string{"--kubeconfig=/k", "--wherry-config=" + on, "--push-socket=none"}, ""},
		{[]string{"--wherry-config=" + off}, ""},
		{[]string{"--wherry-config=" + off, "--push-socket=/s"}, "/s"},
		{[]string{"--root-dir=/var/lib/kubelet/"}, config.SystemSocket},
		{[]string{"--root-dir=/r"}, "/run/wherry/wherry-6588117f7b51.sock"}, // never below /r, which pods may mount
		{[]string{"--push-socket=/s"}, "/s"},
		{[]string{"--push-socket=none"}, ""},
	} {
		cfg, _, err := config.Load(c.args)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := cfg.ControlSocket(); got != c.want {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
}

// What is wrong with manifests is said with file and line before anything is done.
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
		t.Error("an absent one is no error")
	}
}

// A runtime that cannot be used is named, with the way out.
func TestFindRuntime(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if got, err := findRuntime(ctx, "simulated://?cpu=1"); err != nil || got != "simulated://?cpu=1" {
		t.Errorf("%q, %v", got, err)
	}
	path := "unix://" + filepath.Join(t.TempDir(), "absent.sock")
	if _, err := findRuntime(ctx, path); err == nil || !strings.Contains(err.Error(), "container runtime at "+path+" does not answer: is it running?") {
		t.Errorf("%v", err)
	}
}
