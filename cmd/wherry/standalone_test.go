package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/config"
)

// The control socket is for its owner only, belongs to one agent at a time, and is taken over from one that was killed.
func TestListenControl(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dir", "wherry.sock")
	l, err := listenControl(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600: %v", info.Mode().Perm(), err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory %v, want 0700: %v", dir.Mode().Perm(), err)
	}
	if _, err := listenControl(path); !errors.Is(err, errInUse) {
		t.Errorf("a second agent: %v, want %v", err, errInUse)
	}
	if got, err := findSocket(t.Context(), path); err != nil || got != path {
		t.Errorf("found %q, %v", got, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	var none noAgent
	if _, err := findSocket(t.Context(), path); !errors.As(err, &none) || !strings.Contains(err.Error(), "no agent listens on "+path+": start one with \"wherry run\" or \"wherry kubelet\"") {
		t.Errorf("without an agent: %v", err)
	}

	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	if l, err = listenControl(path); err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	_ = l.Close()
}

// Without an API server the HTTPS API is for those with a certificate, where somebody says so, and never for anybody.
func TestStandaloneServesNobodyByDefault(t *testing.T) {
	t.Parallel()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	for _, c := range []struct {
		name   string
		args   []string
		serves bool
		fails  string
	}{
		{"by default", nil, false, ""},
		{"in a cluster", []string{"--kubeconfig=/k"}, true, ""},
		{"with a CA, but nobody to ask", []string{"--client-ca-file=" + ca}, false, ""},
		{"without a CA", []string{"--authorization-mode=AlwaysAllow", "--authentication-token-webhook=false"}, false, ""},
		{"with a CA whose certificates may do everything", []string{"--client-ca-file=" + ca, "--authorization-mode=AlwaysAllow"}, true, ""},
		{"anonymous", []string{"--client-ca-file=" + ca, "--authorization-mode=AlwaysAllow", "--anonymous-auth"}, false, "anonymous"},
		{"switched off", []string{"--enable-server=false", "--anonymous-auth"}, false, ""},
	} {
		cfg, _, err := config.Load(c.args)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		n := &node{cfg: cfg, log: slog.New(slog.DiscardHandler)}
		serves, err := n.servesAPI()
		if serves != c.serves || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: serves %v, %v; want %v, %q", c.name, serves, err, c.serves, c.fails)
		}
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
