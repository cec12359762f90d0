package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/cli/podctl"
)

// A command that is interrupted before it was done does not end with the exit status 0, which a script takes for success.
func TestAnInterruptedCommandIsNoSuccess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(manifest, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: i}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 10)
	srv := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { // an agent, or a fleet, that never answers
		asked <- struct{}{}
		<-r.Context().Done()
	})}
	go srv.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { srv.Close() })
	for _, line := range []string{"exec web -- true", "stop web", "rm --force web", "fleet scale 3", "fleet stop", "run --detach --wait " + manifest} {
		for len(asked) > 0 {
			<-asked
		}
		ctx, cancel := context.WithCancel(t.Context())
		root := newRoot()
		root.SetArgs(withSocket(strings.Fields(line), path))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		ended := make(chan error, 1)
		go func() { ended <- root.ExecuteContext(ctx) }()
		select {
		case <-asked:
			cancel()
			err = <-ended
		case err = <-ended:
		}
		cancel()
		var status podctl.ExitStatus
		if !errors.As(err, &status) || status != exitInterrupted {
			t.Errorf("wherry %s: error %v, want the exit status %d", line, err, exitInterrupted)
		}
	}
}

// withSocket adds --socket to the arguments, before those of a command in a container.
func withSocket(args []string, path string) []string {
	for i, a := range args {
		if a == "--" {
			return append(append(append([]string{}, args[:i]...), "--socket", path), args[i:]...)
		}
	}
	return append(append([]string{}, args...), "--socket", path)
}

// A token is not written over another kubeconfig, for example that of the user. The file of an earlier token may be replaced.
func TestABootstrapKubeconfigReplacesNoOtherFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	if err := checkBootstrapFile(own); err != nil {
		t.Errorf("a file that does not exist: %v", err)
	}
	if err := writeBootstrap(own, &rest.Config{Host: "https://127.0.0.1:6443"}, "abcdef.0123456789abcdef"); err != nil {
		t.Fatal(err)
	}
	if err := checkBootstrapFile(own); err != nil {
		t.Errorf("the file of an earlier token: %v", err)
	}
	for name, text := range map[string]string{
		"admin": "apiVersion: v1\nkind: Config\ncurrent-context: admin\nusers: [{name: admin, user: {token: secret}}]\n",
		"both":  "apiVersion: v1\nkind: Config\nusers: [{name: kubelet-bootstrap, user: {token: a}}, {name: admin, user: {token: secret}}]\n",
		"notes": "not a kubeconfig\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkBootstrapFile(file); err == nil || !strings.Contains(err.Error(), "choose another name") {
			t.Errorf("%s: error %v, want that the file is not replaced", name, err)
		}
	}
}

// A bootstrap kubeconfig may go to a pipe, for example to a command that copies it to the node. The check does not wait for somebody who writes there.
func TestABootstrapKubeconfigMayGoToAPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- checkBootstrapFile(pipe) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the check reads from the pipe")
	}
}
