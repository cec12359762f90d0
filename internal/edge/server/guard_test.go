package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	authzv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// endpoint is a request and the access that it needs: the verb on any one of the subresources.
type endpoint struct {
	method, path, verb string
	subresources       []string
}

func endpoints() []endpoint {
	proxy := []string{"proxy"}
	return []endpoint{
		{"GET", "/", "get", proxy},
		{"GET", "/nothing/here", "get", proxy},
		{"DELETE", "/pods", "delete", proxy}, // a client that can push pods can do anything on the node, so the right to read pods is not enough
		{"GET", "/healthz", "get", []string{"healthz", "proxy"}},
		{"GET", "/healthz/ping", "get", []string{"healthz", "proxy"}},
		{"GET", "/healthz/log", "get", []string{"healthz", "proxy"}},
		{"GET", "/healthz/syncloop", "get", []string{"healthz", "proxy"}},
		{"GET", "/healthz/unknown", "get", []string{"healthz", "proxy"}},
		{"GET", "/configz", "get", []string{"configz", "proxy"}},
		{"GET", "/flagz", "get", []string{"configz"}},
		{"GET", "/console/", "get", []string{"console", "proxy"}},
		{"GET", "/console/stream", "get", []string{"console", "proxy"}},
		{"GET", "/console/logs/ns/web/main", "get", []string{"console", "proxy"}},
		{"GET", "/statusz", "get", []string{"statusz"}},
		{"GET", "/metrics", "get", []string{"metrics"}},
		{"GET", "/metrics/cadvisor", "get", []string{"metrics"}},
		{"GET", "/metrics/resource", "get", []string{"metrics"}},
		{"GET", "/metrics/probes", "get", []string{"metrics"}},
		{"GET", "/metrics/slis", "get", []string{"metrics"}},
		{"GET", "/pods", "get", []string{"pods", "proxy"}},
		{"GET", "/pods/", "get", []string{"pods", "proxy"}},
		{"GET", "/runningpods/", "get", []string{"pods", "proxy"}},
		{"GET", "/stats/summary", "get", []string{"stats"}},
		{"GET", "/containerLogs/ns/web/main", "get", proxy},
		{"GET", "/exec/ns/web/main?command=ls&output=1", "get", proxy},
		{"GET", "/attach/ns/web/main?output=1", "get", proxy},
		{"GET", "/portForward/ns/web/uid-1", "get", proxy},
		{"GET", "/run/ns/web/main?cmd=ls", "get", proxy},
		{"OPTIONS", "/run/ns/web/main?cmd=ls", "", proxy},
		{"POST", "/exec/ns/web/main?command=ls&output=1", "create", proxy},
		{"POST", "/exec/ns/web/uid-1/main?command=ls&output=1", "create", proxy},
		{"POST", "/attach/ns/web/main?output=1", "create", proxy},
		{"POST", "/attach/ns/web/uid-1/main?output=1", "create", proxy},
		{"POST", "/portForward/ns/web", "create", proxy},
		{"POST", "/portForward/ns/web/uid-1", "create", proxy},
		{"POST", "/run/ns/web/main?cmd=ls", "create", proxy},
		{"POST", "/run/ns/web/uid-1/main?cmd=ls", "create", proxy},
		{"GET", "/logs/", "get", []string{"log"}},
		{"GET", "/logs/syslog", "get", []string{"log"}},
		{"GET", "/debug/pprof/", "get", proxy},
		{"PUT", "/debug/flags/v", "update", proxy},
		{"PATCH", "/pods/x", "patch", proxy},
		{"OPTIONS", "/metrics", "", []string{"metrics"}},
	}
}

// full returns a server in which every endpoint is switched on and has a source.
func full(t *testing.T) *bench {
	t.Helper()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	return newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Runtime = asRuntime{newFakeRuntime(t)}
		c.Checks = []server.Check{{Name: "syncloop", Func: func() error { return nil }}}
		c.Enable.Flags = true
		c.Sources = server.Sources{
			Stats: ok, Resource: ok, CAdvisor: ok, Probes: ok, Metrics: prometheus.NewRegistry(),
			RunningPods:  func(context.Context) ([]*v1.Pod, error) { return nil, nil },
			Configz:      func() any { return map[string]string{"kind": "KubeletConfiguration"} },
			Flags:        func() map[string]string { return map[string]string{"v": "2"} },
			SetVerbosity: func(string) error { return nil },
			SystemLogDir: t.TempDir(),
			Console:      ok,
			ConsoleRefused: func(w http.ResponseWriter, status int, node, user string) {
				w.WriteHeader(status)
				fmt.Fprintf(w, "page of %s for %q", node, user)
			},
		}
	})
}

// A browser that may not see the console gets a page that says what its user needs. Other clients, and requests for other paths, get the
// usual answers.
func TestABrowserWithoutRightsGetsAPage(t *testing.T) {
	t.Parallel()
	b := full(t)
	good := b.ca.issue(t, "nobody", "group")
	for _, c := range []struct {
		name, path, accept string
		client             *http.Client
		status             int
		page               string
	}{
		{"a browser that nobody knows", "/console/", "text/html,*/*", b.client(nil, ""), http.StatusUnauthorized, `for ""`},
		{"a browser without the right", "/console/", "text/html,*/*", b.client(&good, ""), http.StatusForbidden, `for "nobody"`},
		{"a program without the right", "/console/", "*/*", b.client(&good, ""), http.StatusForbidden, ""},
		{"a browser at another path", "/configz", "text/html,*/*", b.client(&good, ""), http.StatusForbidden, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", c.accept)
		resp, err := c.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != c.status || strings.HasPrefix(string(body), "page of") != (c.page != "") || !strings.HasSuffix(string(body), c.page) {
			t.Errorf("%s: %d %q, want %d and a page %q", c.name, resp.StatusCode, body, c.status, c.page)
		}
	}
}

// "Unauthenticated, wrongly authenticated and unauthorised requests to every endpoint get 401 or 403."
func TestMatrix(t *testing.T) {
	t.Parallel()
	b := full(t)
	good, stranger := b.ca.issue(t, "nobody", "group"), b.other.issue(t, "admin", "system:masters")
	nobody := b.client(&good, "")
	refusals := []struct {
		name   string
		client *http.Client
	}{
		{"no credentials", b.client(nil, "")},
		{"bad token", b.client(nil, "wrong")},
		{"certificate of an unknown authority", b.client(&stranger, "")},
		{"certificate of an unknown authority and a bad token", b.client(&stranger, "wrong")},
	}
	for i, e := range endpoints() {
		name := e.method + " " + e.path
		for _, c := range refusals {
			got := b.do(c.client, e.method, b.url+e.path)
			if got.status != http.StatusUnauthorized || got.body != "Unauthorized" {
				t.Errorf("%s with %s: %d %q, want 401 Unauthorized", name, c.name, got.status, got.body)
			}
		}
		got := b.do(nobody, e.method, b.url+e.path)
		want := fmt.Sprintf("Forbidden (user=nobody, verb=%s, resource=nodes, subresource(s)=%v)\n", e.verb, e.subresources)
		if got.status != http.StatusForbidden || got.body != want {
			t.Errorf("%s without the right: %d %q, want 403 %q", name, got.status, got.body, want)
		}
		// Each right alone is enough, except for a request that runs something by a method other than POST. The test authenticates
		// once by certificate and once by token.
		runs := strings.HasPrefix(e.path, "/exec/") || strings.HasPrefix(e.path, "/attach/") || strings.HasPrefix(e.path, "/portForward/") || strings.HasPrefix(e.path, "/run/")
		for j, sub := range e.subresources {
			user := fmt.Sprintf("user-%d-%d", i, j)
			b.access.mu.Lock()
			b.access.rules[user] = []string{e.verb + " " + sub}
			b.access.mu.Unlock()
			if runs && e.method != "POST" {
				got := b.do(b.client(nil, "token-"+user), e.method, b.url+e.path)
				if want := fmt.Sprintf("Forbidden (user=%s, verb=create, resource=nodes, subresource(s)=[proxy])\n", user); got.status != http.StatusForbidden || got.body != want {
					t.Errorf("%s by one who may not create: %d %q, want 403 %q", name, got.status, got.body, want)
				}
				user += "-create" // a new user name, because the server caches the answer for the first user
				b.access.mu.Lock()
				b.access.rules[user] = []string{e.verb + " " + sub, "create proxy"}
				b.access.mu.Unlock()
			}
			cert := b.ca.issue(t, user)
			for kind, c := range map[string]*http.Client{"certificate": b.client(&cert, ""), "token": b.client(nil, "token-"+user)} {
				got := b.do(c, e.method, b.url+e.path)
				if got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
					t.Errorf("%s with %s of one who may %q: %d %q", name, kind, sub, got.status, got.body)
				}
			}
		}
	}
}

// The guard and the router must read a path in the same way, so no spelling of a path reaches a handler without a right.
func TestGuardAndRoutesAgree(t *testing.T) {
	t.Parallel()
	b := full(t)
	b.access.rules["metricsonly"] = []string{"get metrics", "create metrics", "get stats", "get pods", "create pods"}
	c := b.client(nil, "token-metricsonly")
	for _, path := range []string{
		"/metrics/../run/ns/web/main?cmd=ls", "/metrics%2f..%2frun/ns/web/main?cmd=ls", "//metrics/../run/ns/web/main?cmd=ls",
		"/metrics/%2e%2e/run/ns/web/main?cmd=ls", "/pods/..%2fexec/ns/web/main?command=ls&output=1", "/stats/./../exec/ns/web/main?command=ls&output=1",
	} {
		for _, method := range []string{"GET", "POST", "CONNECT"} {
			req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, nil)
			must(t, err)
			if method == "CONNECT" {
				continue // Go's client does not send such paths
			}
			resp, err := c.Do(req)
			must(t, err)
			resp.Body.Close()
			// A redirect to the cleaned path is fine, because the next request is authorised again.
			if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusBadRequest {
				t.Errorf("%s %s: %d, it was served", method, path, resp.StatusCode)
			}
		}
	}
}

func TestAccessReview(t *testing.T) {
	t.Parallel()
	b := full(t)
	cert := b.ca.issue(t, "prom", "monitoring")
	b.access.rules["prom"] = []string{"get metrics"}
	for range 3 {
		if got := b.do(b.client(&cert, ""), "GET", b.url+"/metrics"); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if len(b.access.asked) != 1 {
		t.Errorf("%d reviews, want 1: the answer is remembered", len(b.access.asked))
	}
	got := b.access.asked[0]
	extra := got.Extra["authentication.kubernetes.io/credential-id"]
	if len(extra) != 1 || !strings.HasPrefix(extra[0], "X509SHA256=") {
		t.Errorf("credential-id %v", extra)
	}
	got.Extra = nil
	want := authzv1.SubjectAccessReviewSpec{
		User: "prom", Groups: []string{"monitoring", "system:authenticated"},
		ResourceAttributes: &authzv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "metrics", Name: "n1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("review (-want +got):\n%s", diff)
	}
	b.access.mu.Lock()
	b.access.err = errors.New("API server is away")
	b.access.mu.Unlock()
	if got := b.do(b.client(&cert, ""), "GET", b.url+"/metrics"); got.status != 200 {
		t.Errorf("remembered answer: %d", got.status)
	}
	if got := b.do(b.client(&cert, ""), "GET", b.url+"/configz"); got.status != 500 ||
		got.body != "Authorization error (user=prom, verb=get, resource=nodes, subresource=configz)" {
		t.Errorf("%d %q", got.status, got.body)
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *server.Config, b *bench) {
		c.Authenticator = server.NewAuthenticator(server.AuthnConfig{Anonymous: true, Tokens: b.tokens})
		b.access.rules["system:anonymous"] = []string{"get healthz"}
	})
	if got := b.do(b.client(nil, ""), "GET", b.url+"/healthz"); got.status != 200 {
		t.Errorf("anonymous: %d %s", got.status, got.body)
	}
	if diff := cmp.Diff([]string{"system:unauthenticated"}, b.access.asked[0].Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if got := b.do(b.client(nil, "wrong"), "GET", b.url+"/healthz"); got.status != 401 {
		t.Errorf("a bad token is not nobody: %d", got.status)
	}
	if got := b.do(b.client(nil, ""), "GET", b.url+"/pods"); got.status != 403 {
		t.Errorf("anonymous pods: %d", got.status)
	}
}

func TestAlwaysAllow(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *server.Config, _ *bench) { c.Authorizer = server.AlwaysAllow{} })
	if got := b.do(b.client(nil, "token-anybody"), "GET", b.url+"/pods"); got.status != 200 {
		t.Errorf("%d", got.status)
	}
	if got := b.do(b.client(nil, ""), "GET", b.url+"/pods"); got.status != 401 {
		t.Errorf("still to be authenticated: %d", got.status)
	}
}

// The server reads the client CA file again when it changes, also for open connections.
func TestClientCAReload(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	old, fresh := b.ca.issue(t, "admin"), b.other.issue(t, "admin")
	oldClient, freshClient := b.client(&old, ""), b.client(&fresh, "")
	status := func(c *http.Client) int { return b.do(c, "GET", b.url+"/healthz").status }
	if a, f := status(oldClient), status(freshClient); a != 200 || f != 401 {
		t.Fatalf("before: %d %d", a, f)
	}
	must(t, os.WriteFile(b.caFile, b.other.pem, 0o600))
	eventually(t, func() bool { return status(oldClient) == 401 && status(freshClient) == 200 })
}

// Without the feature gate ReloadKubeletClientCAFile, a handshake names the authorities that the file had at the start.
func TestFixedClientCAs(t *testing.T) {
	t.Parallel()
	const gate = "ReloadKubeletClientCAFile"
	path := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := server.FixedClientCAs(path); err == nil {
		t.Error("no error without the file")
	}
	must(t, os.WriteFile(path, newAuthority(t, "first").pem, 0o600))
	synctest.Test(t, func(t *testing.T) {
		fixed, err := server.FixedClientCAs(path)
		must(t, err)
		reloaded, err := server.LoadClientCAs(path, slog.New(slog.DiscardHandler))
		must(t, err)
		before, was := fixed.Pool(), reloaded.Pool()
		must(t, os.WriteFile(path, newAuthority(t, "second").pem, 0o600))
		time.Sleep(time.Hour)
		if fixed.Pool() != before {
			t.Errorf("%s off: the changed file is in force", gate)
		}
		if reloaded.Pool() == was {
			t.Errorf("%s on: the changed file is not in force", gate)
		}
	})
}

func TestBadClientCAFileChangesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ca.crt")
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	if _, err := server.LoadClientCAs(path, nil); err == nil || !strings.Contains(err.Error(), "authentication.x509.clientCAFile") {
		t.Errorf("no file: %v", err)
	}
	must(t, os.WriteFile(path, first.pem, 0o600))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cas, err := server.LoadClientCAs(path, slog.New(slog.NewTextHandler(&log, nil)))
		must(t, err)
		pool := cas.Pool()
		must(t, os.WriteFile(path, []byte("not a certificate"), 0o600))
		for range 3 {
			time.Sleep(2 * time.Second)
			if cas.Pool() != pool {
				t.Error("the bad file is in force")
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines of log, want 1: %s", n, log.String())
		}
		must(t, os.Remove(path))
		time.Sleep(2 * time.Second)
		if cas.Pool() != pool {
			t.Error("no file is in force")
		}
		must(t, os.WriteFile(path, second.pem, 0o600))
		time.Sleep(2 * time.Second)
		if cas.Pool() == pool {
			t.Error("the good file is not in force")
		}
	})
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if ok() {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Fatal("it has not come to pass in 2 minutes")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	if _, _, err := server.ParseTLS("VersionTLS9", nil); err == nil || !strings.HasPrefix(err.Error(), "tlsMinVersion: ") {
		t.Errorf("error %v", err)
	}
	if _, _, err := server.ParseTLS("", []string{"TLS_AES_128_GCM_SHA256", "NOPE"}); err == nil || !strings.HasPrefix(err.Error(), "tlsCipherSuites[1]: ") {
		t.Errorf("error %v", err)
	}
	version, suites, err := server.ParseTLS("VersionTLS12", []string{"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"})
	must(t, err)
	cert := newAuthority(t, "ca").issue(t, "n1")
	conf := server.TLSConfig{
		MinVersion: version, CipherSuites: suites,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil },
	}.New()
	l := tls.NewListener(listen(t), conf)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).HandshakeContext(context.Background())
			c.Close()
		}
	}()
	for _, c := range []struct {
		version, suite uint16
		ok             bool
	}{
		{tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, true},
		{tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, false},
		{tls.VersionTLS11, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, false},
	} {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: c.version, CipherSuites: []uint16{c.suite}, //nolint:gosec // a bad client
		})
		if (err == nil) != c.ok {
			t.Errorf("version %x suite %x: %v", c.version, c.suite, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}
