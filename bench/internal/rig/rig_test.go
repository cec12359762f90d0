package rig

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// If the control plane ends before it is ready, the rig returns an error at once. It also waits for the process, so that no zombie stays.
func TestPlaneThatEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "wherry-controlplane"), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := &Rig{Bin: dir, Dir: dir}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.startPlane(ctx); err == nil || !strings.Contains(err.Error(), "it ended") {
		t.Errorf("start: %v", err)
	}
	<-r.planeDone
}

// If the program of an agent cannot be started, the Agent counts as stopped, and Stop does nothing.
func TestAgentThatDoesNotStart(t *testing.T) {
	t.Parallel()
	a := &Agent{}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := a.run(exec.Command(filepath.Join(t.TempDir(), "missing")), log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start: %v", err)
	}
	a.Stop()
}

// The directory of a rig is absolute and has no symbolic links, because it is compared with the kernel's list of mounts.
func TestRealDir(t *testing.T) {
	dir := t.TempDir()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if got, err := realDir("link/new"); err != nil || got != filepath.Join(real, "new") {
		t.Errorf("%q, %v", got, err)
	}
}

// A connection that is accepted just before Close is closed too, and does not make Close wait forever.
func TestCounterClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := net.Listen("unix", filepath.Join(dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := count(filepath.Join(dir, "count"), server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	from, client := net.Pipe()
	c.wg.Go(func() { c.serve(from) }) // the goroutine that accepts connections makes the same call
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read from a closed proxy: %v", err)
	}
	c.wg.Wait()
}

// If the audit log is shorter than the offset, Requests returns an error, because requests are missing.
func TestRequestsOfShorterLog(t *testing.T) {
	t.Parallel()
	r := &Rig{Dir: t.TempDir()}
	line := `{"verb":"get","user":{"username":"system:node:n"},"objectRef":{"resource":"pods"}}` + "\n"
	if err := os.WriteFile(r.AuditLog(), []byte(line+line), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Requests("n", int64(len(line))); err != nil || got["get pods"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.Requests("n", int64(3*len(line))); err == nil {
		t.Errorf("from behind the end: %v", got)
	}
}

// If the watch ends by itself, every call that waits for a change returns errEnded. A watch that Close ended has no error.
func TestWatchThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Watch{pods: map[string]*podSeen{}, nodes: map[string][]nodeSeen{}, moved: make(chan struct{})}
		changes := make(chan watch.Event)
		w.wg.Go(func() { w.follow(t.Context(), changes) })
		waited := make(chan error, 1)
		go func() {
			_, err := w.Gone(t.Context(), []string{"pod"})
			waited <- err
		}()
		synctest.Wait()
		close(changes)
		if err := <-waited; !errors.Is(err, errEnded) {
			t.Errorf("wait: %v", err)
		}
		if _, _, err := w.NodeReady("node", time.Now()); !errors.Is(err, errEnded) {
			t.Errorf("node: %v", err)
		}
		w.Close()
	})
	closed := &Watch{closed: true, moved: make(chan struct{})}
	changes := make(chan watch.Event)
	close(changes)
	if closed.follow(t.Context(), changes); closed.err != nil {
		t.Errorf("a watch that was closed: %v", closed.err)
	}
}

func TestAfterName(t *testing.T) {
	t.Parallel()
	if got := afterName("12 (a) R 1 (b) c) S 1 2"); !slices.Equal(got, []string{"S", "1", "2"}) {
		t.Errorf("%q", got)
	}
}
