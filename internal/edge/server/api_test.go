package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/server"
)

const (
	jsonType = "application/json"
	textType = "text/plain; charset=utf-8"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	must(t, os.WriteFile(filepath.Join(logs, "syslog"), []byte("booted\n"), 0o600))
	must(t, os.Symlink("/etc/passwd", filepath.Join(logs, "escape")))
	b := newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Checks = []server.Check{{Name: "syncloop", Func: func() error { return errors.New("stuck since noon") }}}
		text := func(s string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) })
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "answer"}, func() float64 { return 42 }))
		c.Enable.Flags = true
		c.Sources = server.Sources{
			Stats: text("{}"), Resource: text("res 1"), CAdvisor: text("cad 1"), Probes: text("pro 1"), Metrics: reg,
			RunningPods:  func(context.Context) ([]*v1.Pod, error) { return nil, errors.New("runtime is away") },
			Configz:      func() any { return map[string]string{"kind": "KubeletConfiguration"} },
			Flags:        func() map[string]string { return map[string]string{"v": "2", "node-ip": ""} },
			SystemLogDir: logs,
			Version:      "v1.36.3",
			Started:      time.Now().Add(-61 * time.Second),
			Extra:        map[string]http.Handler{"GET /explain/": text("because")},
		}
	})
	admin := b.client(nil, "token-admin")
	for _, c := range []struct {
		method, path string
		status       int
		contentType  string
		body         string // with "..." at the end, only the beginning is compared
	}{
		{"GET", "/healthz/ping", 200, textType, "ok"},
		{"GET", "/healthz/log", 200, textType, "ok"},
		{"GET", "/healthz/syncloop", 500, textType, "internal server error: stuck since noon\n"},
		{"GET", "/healthz", 500, textType, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{"GET", "/healthz?exclude=syncloop", 200, textType, "ok"},
		{"GET", "/healthz?verbose&exclude=syncloop&exclude=x", 200, textType, "[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\nwarn: some health checks cannot be excluded: no matches for [\"x\"]\nhealthz check passed\n"},
		{"GET", "/healthz/none", 404, textType, "404 page not found\n"},
		{"GET", "/configz", 200, jsonType, `{"kubeletconfig":{"kind":"KubeletConfiguration"}}` + "\n"},
		{"GET", "/flagz", 200, textType, "\nkubelet flagz\nWarning: ..."},
		{"GET", "/statusz", 200, textType, "\nkubelet statusz\nWarning: ..."},
		{"GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "# HELP answer \n# TYPE answer gauge\nanswer 42\n"},
		{"GET", "/metrics/resource", 200, textType, "res 1"},
		{"GET", "/metrics/cadvisor", 200, textType, "cad 1"},
		{"GET", "/metrics/probes", 200, textType, "pro 1"},
		{"GET", "/stats/summary?only_cpu_and_memory=true", 200, textType, "{}"},
		{"GET", "/pods", 200, jsonType, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web",...`},
		{"GET", "/pods/", 200, jsonType, `{"kind":"PodList",...`},
		{"POST", "/pods", 405, textType, "Method Not Allowed\n"},
		{"GET", "/pods/more", 404, textType, "404 page not found\n"},
		{"GET", "/runningpods/", 500, textType, "runtime is away\n"},
		{"GET", "/logs/syslog", 200, textType, "booted\n"},
		{"GET", "/logs/escape", 400, textType, "..."},
		{"GET", "/logs/none", 404, textType, "404 page not found\n"},
		{"GET", "/logs/?query=kubelet", 501, textType, "query: this node answers no log queries: set enableSystemLogQuery: true, or read files below /logs/\n"},
		{"GET", "/debug/pprof/cmdline", 200, textType, "..."},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, textType, "goroutine profile: ..."},
		{"GET", "/debug/flags/v", 405, textType, "flags endpoint is disabled.\n"}, // 405, because SetVerbosity is nil
		{"GET", "/explain/ns/web", 200, textType, "because"},
		{"GET", "/spec", 404, textType, "404 page not found\n"},
	} {
		got := b.do(admin, c.method, b.url+c.path)
		begin, open := strings.CutSuffix(c.body, "...")
		if got.status != c.status || (open && !strings.HasPrefix(got.body, begin)) || (!open && got.body != c.body) {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, got.status, got.body, c.status, c.body)
		}
		if ct := got.header.Get("Content-Type"); ct != c.contentType {
			t.Errorf("%s %s: content type %q, want %q", c.method, c.path, ct, c.contentType)
		}
	}
	if body := b.get("/statusz").body; !strings.Contains(body, "Binary version: 1.36.3\n") || !strings.Contains(body, "Up: 0 hr 0") || !strings.Contains(body, " /configz ") {
		t.Errorf("statusz: %s", body)
	}
	if body := b.get("/flagz").body; !strings.HasSuffix(body, "\n\nnode-ip=\nv=2\n") {
		t.Errorf("flagz: %q", body)
	}
	if body := b.get("/metrics/slis").body; !strings.Contains(body, "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 0\n") ||
		!strings.Contains(body, "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 3\n") {
		t.Errorf("slis: %s", body)
	}
	var list v1.PodList
	must(t, json.Unmarshal([]byte(b.get("/pods").body), &list))
	if diff := cmp.Diff(*b.node.pods[0], list.Items[0]); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// "The kubelet's read-only port ... has no authentication/authorization": it serves only health, pods, stats and
// metrics. The health port serves only health.
func TestOtherPorts(t *testing.T) {
	t.Parallel()
	b := full(t)
	c := b.client(nil, "")
	for _, e := range endpoints() {
		first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(e.path, "/"), "/"), "/")
		open := e.method == "GET" && (first == "healthz" || first == "pods" || first == "stats" || first == "metrics") && e.path != "/healthz/unknown"
		if got := b.do(c, e.method, b.readOnlyURL+e.path); (got.status == 200) != open {
			t.Errorf("read-only port %s %s: %d", e.method, e.path, got.status)
		}
		health := e.path == "/healthz" || e.path == "/healthz/ping"
		if got := b.do(c, e.method, b.healthURL+e.path); (got.status == 200) != health {
			t.Errorf("health port %s %s: %d", e.method, e.path, got.status)
		}
	}
}

func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *server.Config, b *bench) {
		c.Enable = server.Enable{}
		c.Runtime = asRuntime{}
		c.Sources.Configz = func() any { return nil }
		c.Sources.Checkpoint = func(context.Context, *v1.Pod, string, string, time.Duration) (string, error) {
			t.Error("a checkpoint was made")
			return "", nil
		}
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
	})
	for _, path := range []string{"/exec/a/b/c", "/run/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/containerLogs/a/b/c", "/runningpods/", "/debug/pprof/", "/logs/"} {
		if got := b.get(path); got.status != 405 || got.body != "Debug endpoints are disabled.\n" {
			t.Errorf("%s: %d %q", path, got.status, got.body)
		}
	}
	if got := b.get("/configz"); got.status != 404 {
		t.Errorf("configz: %d", got.status)
	}
	if got := b.do(b.client(nil, "token-admin"), "POST", b.url+"/checkpoint/ns/web/main"); got.status != 404 {
		t.Errorf("checkpoint: %d", got.status)
	}
	if got := b.get("/pods"); got.status != 200 {
		t.Errorf("pods: %d", got.status)
	}
	b = newBench(t, func(c *server.Config, _ *bench) { c.Enable = server.Enable{Debugging: true} })
	for path, text := range map[string]string{"/logs/": "logs", "/debug/pprof/": "profiling", "/debug/flags/v": "flags"} {
		if got := b.get(path); got.status != 405 || got.body != text+" endpoint is disabled.\n" {
			t.Errorf("%s: %d %q", path, got.status, got.body)
		}
	}
}

func TestVerbosity(t *testing.T) {
	t.Parallel()
	var level string
	b := newBench(t, func(c *server.Config, _ *bench) {
		c.Enable.Flags = true
		c.Sources.SetVerbosity = func(v string) error {
			if v != "4" {
				return errors.New("not a number")
			}
			level = v
			return nil
		}
	})
	put := func(body string) answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.url+"/debug/flags/v", strings.NewReader(body))
		must(t, err)
		resp, err := b.client(nil, "token-admin").Do(req)
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		return answer{status: resp.StatusCode, body: string(text)}
	}
	if got := put("4\n"); got.status != 200 || level != "4" {
		t.Errorf("%d %q, level %q", got.status, got.body, level)
	}
	if got := put("x"); got.status != 400 || got.body != "v: not a number\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := put(strings.Repeat("4", 5000)); got.status != 400 {
		t.Errorf("%d %q", got.status, got.body)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	good := func() server.Config {
		return server.Config{
			NodeName: "n", Authenticator: server.NewAuthenticator(server.AuthnConfig{}), Authorizer: server.AlwaysAllow{},
			Pods: &node{}, Log: slog.New(slog.DiscardHandler), Enable: server.Enable{Debugging: true},
		}
	}
	for name, break_ := range map[string]func(*server.Config){
		"NodeName":          func(c *server.Config) { c.NodeName = "" },
		"Authenticator":     func(c *server.Config) { c.Authenticator = nil },
		"Pods":              func(c *server.Config) { c.Pods = nil },
		"Log":               func(c *server.Config) { c.Log = nil },
		`"GET /pods"`:       func(c *server.Config) { c.Sources.Extra = map[string]http.Handler{"GET /pods": http.NotFoundHandler()} },
		`"GET /{x"`:         func(c *server.Config) { c.Sources.Extra = map[string]http.Handler{"GET /{x": http.NotFoundHandler()} },
		"collector metrics": func(c *server.Config) { c.Registerer = taken(t) },
	} {
		cfg := good()
		break_(&cfg)
		_, err := server.New(cfg)
		if err == nil || (name != "collector metrics" && !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	s, err := server.New(good())
	must(t, err)
	if err := s.Run(t.Context(), server.Listeners{API: listen(t)}); err == nil {
		t.Error("an API listener without TLS is accepted")
	}
}

// taken returns a registry in which the metrics of another server are registered already.
func taken(t *testing.T) prometheus.Registerer {
	t.Helper()
	reg := prometheus.NewRegistry()
	_, err := server.New(server.Config{
		NodeName: "n", Authenticator: server.NewAuthenticator(server.AuthnConfig{}), Authorizer: server.AlwaysAllow{},
		Pods: &node{}, Log: slog.New(slog.DiscardHandler), Registerer: reg,
	})
	must(t, err)
	return reg
}

func TestContainerLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name, text string) string {
		p := filepath.Join(dir, name)
		must(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	const log = "2026-01-02T03:04:05Z stdout F one\n2026-01-02T03:04:06Z stderr F two\n2026-01-02T03:04:07Z stdout F three\n"
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	p, o := onePod()
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "creating"}, v1.Container{Name: "pulling"}, v1.Container{Name: "backoff"}, v1.Container{Name: "crashing"}, v1.Container{Name: "unknown"}, v1.Container{Name: "lost"})
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "creating", State: waiting("ContainerCreating")}, {Name: "pulling", State: waiting("ErrImagePull")},
		{Name: "backoff", State: waiting("ImagePullBackOff")}, {Name: "crashing", State: waiting("CrashLoopBackOff")},
	}
	o.Containers = append(o.Containers,
		pod.Container{ID: "x1", Name: "crashing", Attempt: 1, State: pod.StateExited, LogPath: path("crash1", "2026-01-02T03:04:05Z stdout F crash 1\n")},
		pod.Container{ID: "l1", Name: "lost", State: pod.StateExited, LogPath: filepath.Join(dir, "gone")})
	o.Containers[0].LogPath = path("main2", log)
	o.Containers = append(o.Containers, pod.Container{ID: "old", Name: "main", State: pod.StateExited, LogPath: path("main1", "2026-01-02T03:04:05Z stdout F before\n")})
	o.Containers[2].LogPath = path("init", "2026-01-02T03:04:05Z stdout F init\n")
	b := newBench(t, func(_ *server.Config, b *bench) {
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
	})
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"main", 200, "one\ntwo\nthree\n"},
		{"main?tailLines=1", 200, "three\n"},
		{"main?tail=2", 200, "two\nthree\n"},
		{"main?tail=all", 200, "one\ntwo\nthree\n"},
		{"main?tailLines=0", 200, ""},
		{"main?sinceTime=2026-01-02T03:04:06Z", 200, "two\nthree\n"},
		{"main?sinceSeconds=1", 200, ""},
		{"main?sinceSeconds=9223372036854775807", 200, "one\ntwo\nthree\n"},
		{"main?limitBytes=5", 200, "one\nt"},
		{"main?stream=Stderr", 200, "two\n"},
		{"main?stream=All&timestamps=true&tailLines=1", 200, "2026-01-02T03:04:07.000000000Z three\n"},
		{"main?previous=true", 200, "before\n"},
		{"main?follow=false&previous=0", 200, "one\ntwo\nthree\n"},
		{"init", 200, "init\n"},
		{"init?follow", 200, "init\n"}, // the answer ends at once, because the container has ended
		{"crashing", 200, "crash 1\n"},
		{"crashing?previous=true", 200, "crash 1\n"},
		{"init?previous=true", 400, "previous terminated container \"init\" in pod \"web\" not found\n"},
		{"creating", 400, "container \"creating\" in pod \"web\" is waiting to start: ContainerCreating\n"},
		{"pulling", 400, "container \"pulling\" in pod \"web\" is waiting to start: image can't be pulled\n"},
		{"backoff", 400, "container \"backoff\" in pod \"web\" is waiting to start: trying and failing to pull image\n"},
		{"unknown", 400, "container \"unknown\" in pod \"web\" is not available\n"},
		{"lost", 404, "unable to retrieve container logs: " + dir + "/gone does not exist\n"},
		{"none", 404, "container \"none\" not found in pod \"web\"\n"},
		{"main?tailLines=x", 400, "tailLines: \"x\" is not a number\n"},
		{"main?tailLines=-1", 422, "tailLines: -1 is less than 0\n"},
		{"main?tailLines=99999999999999999999", 400, "tailLines: \"99999999999999999999\" is not a number\n"},
		{"main?limitBytes=0", 422, "limitBytes: 0 is less than 1\n"},
		{"main?sinceSeconds=0", 422, "sinceSeconds: 0 is less than 1\n"},
		{"main?sinceSeconds=1&sinceTime=2026-01-02T03:04:06Z", 422, "sinceSeconds: at most one of sinceTime or sinceSeconds may be given\n"},
		{"main?sinceTime=yesterday", 400, "sinceTime: \"yesterday\" is not a time in RFC 3339 form\n"},
		{"main?follow=maybe", 400, "follow: \"maybe\" is not true or false\n"},
		{"main?stream=stdout", 422, "stream: \"stdout\" is not one of All, Stdout, Stderr\n"},
	} {
		if got := b.get("/containerLogs/ns/web/" + c.path); got.status != c.status || got.body != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.path, got.status, got.body, c.status, c.body)
		}
	}
	if got := b.get("/containerLogs/ns/none/main"); got.status != 404 || got.body != "pod \"none\" does not exist\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
}

// A client that follows a log gets each line as it is written. After the container has ended, it gets the last lines, and then
// the answer ends.
func TestFollowLogs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	add := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = f.WriteString("2026-01-02T03:04:05Z stdout F " + text + "\n")
		must(t, err)
		must(t, f.Close())
	}
	p, o := onePod()
	o.Containers[0].LogPath = path
	b := newBench(t, func(_ *server.Config, b *bench) {
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
	})
	follow := func() io.ReadCloser {
		req, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/containerLogs/ns/web/main?follow=true", nil)
		must(t, err)
		resp, err := b.client(nil, "token-admin").Do(req)
		must(t, err)
		return resp.Body
	}
	body := follow() // the headers of the answer arrive before the first log line
	defer body.Close()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(body, got); err != nil || string(got) != want {
			t.Fatalf("got %q %v, want %q", got, err, want)
		}
	}
	add("one")
	expect("one\n")
	add("two")
	expect("two\n")
	add("three")
	ended := pod.Observed{Ref: o.Ref, Containers: []pod.Container{{ID: "c1", Name: "main", State: pod.StateExited, LogPath: path}}}
	b.node.observe(ended)
	expect("three\n")
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Errorf("the end: %q %v", rest, err)
	}
	// When the server ends, the answer breaks off, because the container has not ended.
	b.node.observe(o)
	body = follow()
	expect("one\ntwo\nthree\n")
	b.stop()
	if rest, err := io.ReadAll(body); err == nil || len(rest) > 0 {
		t.Errorf("at the end of the server: %q %v, want an error", rest, err)
	}
}
