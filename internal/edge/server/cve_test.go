package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// toBackend returns a server whose runtime sends every exec to one handler.
func toBackend(t *testing.T, h http.HandlerFunc) *bench {
	t.Helper()
	backend := httptest.NewServer(h)
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	must(t, err)
	return newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Runtime = toURL{asRuntime{}, target}
	})
}

const upgradeExec = "POST /exec/ns/web/main?command=x&output=1 HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer token-admin\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"

// If the backend (the runtime's streaming server) refuses an upgrade, the client gets no open connection to the backend. The next bytes of
// the client are a new request to the node, which needs credentials.
func TestCVE20181002105RefusedUpgradeLeavesNoConnection(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	b := toBackend(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "" {
			t.Error("the credentials have reached the backend")
		}
		http.Error(w, "no", http.StatusBadRequest)
	})
	conn, err := tls.Dial("tcp", strings.TrimPrefix(b.url, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // test
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	in := bufio.NewReader(conn)
	for i, request := range []string{upgradeExec, "GET /exec/any HTTP/1.1\r\nHost: node\r\n\r\n"} {
		_, err := fmt.Fprint(conn, request)
		must(t, err)
		resp, err := http.ReadResponse(in, nil)
		must(t, err)
		resp.Body.Close()
		if want := []int{http.StatusBadRequest, http.StatusUnauthorized}[i]; resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i+1, resp.StatusCode, want)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("the backend saw %d requests, want 1", n)
	}
}

// If the backend (the runtime's streaming server) redirects a stream, the node does not follow, and the client does not see the target of
// the redirect.
func TestCVE20208559RedirectsOfStreamsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		b := toBackend(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, code) })
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/exec/ns/web/main?command=x&output=1", nil)
		must(t, err)
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "Authorization": {"Bearer token-admin"}}
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}} //nolint:gosec // test
		t.Cleanup(tr.CloseIdleConnections)
		resp, err := tr.RoundTrip(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Location") != "" {
			t.Errorf("%d: %d, Location %q; want 502 and none", code, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
	if followed.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// No port that is open to everybody serves profiles or other data about the process.
func TestCVE201911248DebuggingIsOnNoOpenPort(t *testing.T) {
	t.Parallel()
	b := full(t)
	for _, base := range []string{b.healthURL, b.readOnlyURL} {
		for _, path := range []string{
			"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/cmdline", "/debug/flags/v", "/logs/", "/configz", "/flagz", "/statusz",
			"/exec/ns/web/main?command=ls&output=1", "/run/ns/web/main?cmd=ls", "/containerLogs/ns/web/main", "/runningpods/",
		} {
			if got := b.do(b.client(nil, "token-admin"), http.MethodGet, base+path); got.status != http.StatusNotFound {
				t.Errorf("%s%s: %d, want 404", base, path, got.status)
			}
		}
	}
}

// If Sources.Checkpoint is nil, nobody can checkpoint a container: neither clients of the open ports nor users with all rights.
func TestCVE20250426CheckpointsAreGuarded(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		b.access.rules["reader"] = []string{"create checkpoint", "create proxy"}
	})
	const path = "/checkpoint/ns/web/main"
	for _, c := range []struct {
		url, token string
		want       []int
	}{
		{b.healthURL, "", []int{404, 405}}, {b.readOnlyURL, "", []int{404, 405}}, {b.readOnlyURL, "token-admin", []int{404, 405}},
		{b.url, "", []int{401}}, {b.url, "token-reader", []int{404}}, {b.url, "token-admin", []int{404}},
	} {
		if got := b.do(b.client(nil, c.token), http.MethodPost, c.url+path); !slices.Contains(c.want, got.status) {
			t.Errorf("POST %s with %q: %d, want one of %v", c.url+path, c.token, got.status, c.want)
		}
	}
}

// Paths and methods that clients make up create no metric series.
func TestCVE20208551MadeUpRequestsMakeNoSeries(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s, err := server.New(server.Config{
		NodeName: "n1", Pods: &node{}, Log: slog.New(slog.DiscardHandler), Authorizer: server.AlwaysAllow{}, Registerer: reg,
		Authenticator: server.NewAuthenticator(server.AuthnConfig{}),
	})
	must(t, err)
	for i := range 3000 {
		r := httptest.NewRequest(fmt.Sprintf("M%d", i%100), fmt.Sprintf("/p%d/x", i), nil)
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		s.ReadOnlyHandler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprintf("/metrics/p%d", i), nil))
	}
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if n := len(f.GetMetric()); n > 4 {
			t.Errorf("%s has %d series after 6,000 requests, all of them made up", f.GetName(), n)
		}
	}
	if len(families) == 0 {
		t.Error("nothing is counted, so the test proves nothing")
	}
}
