package server_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/proof/program"
)

// If node log queries are enabled, /logs/?query= answers with messages of the journal or with a file; otherwise it answers 501. A request
// without a query gets a file of the log directory either way.
func TestNodeLogQuery(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	must(t, os.WriteFile(filepath.Join(logs, "foo.log"), []byte("text\n"), 0o600))
	must(t, os.Symlink("/etc/hostname", filepath.Join(logs, "escape.log")))
	journalctl := filepath.Join(t.TempDir(), "journalctl")
	program.Write(t, journalctl, []byte("#!/bin/sh\nif [ \"$1\" = --field ]; then echo kubelet.service; exit; fi; echo \"$@\"\n"))
	for _, on := range []bool{true, false} {
		b := newBench(t, func(c *server.Config, _ *bench) {
			c.Sources.SystemLogDir, c.Sources.Journalctl, c.Enable.SystemLogQuery = logs, journalctl, on
		})
		admin := b.client(nil, "token-admin")
		for _, c := range []struct {
			path   string
			status int
			body   string
		}{
			{"?query=kubelet&tailLines=2", 200, "--lines=2 --unit=kubelet"},
			{"?query=foo", 200, "text\n"},
			{"?query=/foo.log", 200, "text\n"},
			{"?query=/absent.log", 406, "absent.log"},
			{"?query=/escape.log", 406, "escape.log"},
			{"?query=/../etc/passwd", 406, "etc/passwd"},
			{"?query=", 400, "may not be empty"},
			{"?tailLines=1", 406, "cannot be empty with options"},
			{"foo.log?query=kubelet", 406, "path not allowed in query mode"},
		} {
			if !on {
				c.status, c.body = 501, "set enableSystemLogQuery"
				if c.path[1] == 't' { // a path without a query: /logs/ lists the files
					c.status, c.body = 200, "foo.log"
				}
			}
			if got := b.do(admin, "GET", b.url+"/logs/"+c.path); got.status != c.status || !contains(got.body, c.body) {
				t.Errorf("GET /logs/%s (%t): %d %q, want %d %q", c.path, on, got.status, got.body, c.status, c.body)
			}
		}
		if got := b.do(admin, "GET", b.url+"/logs/foo.log"); got.status != 200 || got.body != "text\n" {
			t.Errorf("a file: %d %q", got.status, got.body)
		}
		if got := b.do(b.client(nil, "token-nobody"), "GET", b.url+"/logs/?query=kubelet"); got.status != http.StatusForbidden {
			t.Errorf("a user without the right: %d", got.status)
		}
	}
}

// POST /checkpoint makes a checkpoint of the running instance of a container, and answers with the HTTP statuses of upstream's
// kubelet.
func TestCheckpointContainer(t *testing.T) {
	t.Parallel()
	type call struct {
		id      string
		timeout time.Duration
	}
	var last call
	fail := error(nil)
	reg := prometheus.NewRegistry()
	b := newBench(t, func(c *server.Config, b *bench) {
		c.Registerer, c.Sources.Metrics = reg, reg
		p, o := onePod()
		idle := p.DeepCopy()
		idle.Name, idle.UID = "idle", "idle"
		b.node.pods = []*v1.Pod{p, idle}
		b.node.observe(o)
		c.Sources.Checkpoint = func(_ context.Context, _ *v1.Pod, id, _ string, timeout time.Duration) (string, error) {
			last = call{id, timeout}
			return "/root/checkpoint.tar", fail
		}
	})
	_, o := onePod()
	var runs string
	for _, c := range o.Containers {
		if c.Name == "main" && c.State == pod.StateRunning {
			runs = c.ID
		}
	}
	admin := b.client(nil, "token-admin")
	for _, c := range []struct {
		method, path string
		fail         error
		status       int
		body         string
		want         call
	}{
		{"POST", "ns/web/main", nil, 200, `{"items":["/root/checkpoint.tar"]}`, call{runs, 0}},
		{"POST", "ns/web/main?timeout=1&timeout=77", nil, 200, "checkpoint.tar", call{runs, 77 * time.Second}},
		{"POST", "ns/web/main?timeout=9223372036854775807", nil, 200, "checkpoint.tar", call{runs, 9223372036 * time.Second}},
		{"POST", "ns/web/main", errors.New("no CRIU"), 500, "checkpointing of ns/web/main failed (no CRIU)", call{runs, 0}},
		{"POST", "ns/web/main?timeout=x", nil, 404, "cannot parse value of timeout parameter", call{}},
		{"POST", "ns/web/main?timeout=-1", nil, 500, "must not be negative", call{}},
		{"POST", "ns/web/other", nil, 404, "container other does not exist", call{}},
		{"POST", "ns/absent/main", nil, 404, "pod does not exist", call{}},
		{"POST", "ns/idle/main", nil, 500, "checkpointing of ns/idle/main failed (container main not found)", call{}},
		{"GET", "ns/web/main", nil, 405, "", call{}},
	} {
		last, fail = call{}, c.fail
		got := b.do(admin, c.method, b.url+"/checkpoint/"+c.path)
		if got.status != c.status || !contains(got.body, c.body) || last != c.want {
			t.Errorf("%s %s: %d %q, call %+v; want %d %q %+v", c.method, c.path, got.status, got.body, last, c.status, c.body, c.want)
		}
	}
	if got := b.do(b.client(nil, "token-nobody"), "POST", b.url+"/checkpoint/ns/web/main"); got.status != http.StatusForbidden {
		t.Errorf("a user without the right: %d", got.status)
	}
	if body := b.get("/metrics").body; !contains(body, `kubelet_http_requests_total{long_running="false",method="POST",path="checkpoint",server_type="readwrite"}`) {
		t.Errorf("the metrics do not count the requests:\n%s", body)
	}
}
