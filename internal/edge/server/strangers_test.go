package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// raw sends a request target unchanged; Go's client would clean it.
func raw(t *testing.T, address, method, target, header string) int {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // test
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: node\r\n%sConnection: close\r\n\r\n", method, target, header)
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	must(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// No spelling of a path, and no method, succeeds for a client without credentials or without rights.
func TestRawTargetsAreGuarded(t *testing.T) {
	t.Parallel()
	b := full(t)
	b.access.rules["reader"] = []string{"get metrics", "get stats", "get pods", "get healthz"}
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FROB"}
	targets := []string{
		"*", "/", "//", "/.", "/..", "/%2e%2e/configz", "/configz", "//configz", "/configz/", "/./configz", "/x/../configz", "/config%7a", "/%63onfigz",
		"/metrics/..;/configz", "/metrics;/../run/ns/web/main?cmd=ls", "/metrics/%2e%2e/run/ns/web/main?cmd=ls", "/metrics%2f..%2frun/ns/web/main?cmd=ls",
		"/run/ns/web/main?cmd=ls", "//run/ns/web/main?cmd=ls", "/run%2fns/web/main?cmd=ls", "/RUN/ns/web/main?cmd=ls", "/exec/ns/web/main?command=ls&output=1",
		"/debug/pprof/", "/debug/pprof/heap", "/debug//pprof/heap", "/logs/", "/logs/../../etc/passwd", "/flagz", "/statusz",
		"http://other/configz", "http://other/run/ns/web/main?cmd=ls", "node:10250", "/checkpoint/ns/web/main",
	}
	address := strings.TrimPrefix(b.url, "https://")
	type try struct{ who, header, method, target string }
	tries := make(chan try)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for c := range tries {
				status := raw(t, address, c.method, c.target, c.header)
				if status/100 == 2 || status/100 == 1 {
					t.Errorf("%s: %s %s: %d", c.who, c.method, c.target, status)
				}
			}
		})
	}
	for who, header := range map[string]string{
		"nobody": "", "a stranger": "Authorization: Bearer wrong\r\n", "one without rights": "Authorization: Bearer token-nobody\r\n",
		"one who may read metrics": "Authorization: Bearer token-reader\r\n",
	} {
		for _, method := range methods {
			for _, target := range targets {
				tries <- try{who, header, method, target}
			}
		}
	}
	close(tries)
	wg.Wait()
	if status := raw(t, address, "OPTIONS", "*", ""); status != http.StatusUnauthorized {
		t.Errorf("OPTIONS *: %d, want 401: net/http answers it before the guard", status)
	}
	if status := raw(t, address, "GET", "/metrics", "Authorization: Bearer token-reader\r\n"); status != http.StatusOK {
		t.Errorf("GET /metrics by one who may: %d, so the test proves nothing", status)
	}
}

// With server.streamingByGet AsUpstream, the right to get nodes/proxy is enough for a command over WebSocket; otherwise
// it is not.
func TestStreamingByGet(t *testing.T) {
	t.Parallel()
	for _, upstream := range []bool{false, true} {
		b := newBench(t, func(c *server.Config, b *bench) {
			p, o := onePod()
			b.node.pods = []*v1.Pod{p}
			b.node.observe(o)
			c.Runtime, c.StreamingByGet = asRuntime{newFakeRuntime(t)}, upstream
			b.access.rules["reader"] = []string{"get proxy"}
		})
		got := b.do(b.client(nil, "token-reader"), "GET", b.url+"/exec/ns/web/main?command=ls&output=1")
		want := http.StatusForbidden
		if upstream {
			want = http.StatusBadRequest // the request is authorised, but it does not ask for an upgrade
		}
		if got.status != want {
			t.Errorf("as upstream %t: %d %q, want %d", upstream, got.status, got.body, want)
		}
	}
}

// A browser adds its user's certificate to every request. A page of another site must not be able to use this certificate.
func TestCrossOriginIsRefused(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	cert := b.ca.issue(t, "admin")
	host := strings.TrimPrefix(b.url, "https://")
	for _, c := range []struct {
		name   string
		header http.Header
		token  bool
		status int
	}{
		{"no browser", nil, false, 101},
		{"own page", http.Header{"Origin": {"https://" + host}}, false, 101},
		{"page of another site", http.Header{"Origin": {"https://evil.example"}}, false, 403},
		{"page of another port", http.Header{"Origin": {"https://127.0.0.1:1"}}, false, 403},
		{"page without an origin", http.Header{"Origin": {"null"}}, false, 403},
		{"page with a made-up token besides", http.Header{"Origin": {"https://evil.example"}, "Authorization": {"Bearer x"}}, false, 403},
		{"through the API server", http.Header{"Origin": {"https://dashboard.example"}, "X-Forwarded-For": {"10.0.0.1"}}, false, 101},
		{"with a token", http.Header{"Origin": {"https://dashboard.example"}, "Authorization": {"Bearer token-admin"}}, true, 101},
	} {
		conf := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // test
		if !c.token {
			conf.Certificates = []tls.Certificate{cert}
		}
		d := websocket.Dialer{TLSClientConfig: conf, Subprotocols: []string{"v5.channel.k8s.io"}}
		conn, resp, err := d.DialContext(t.Context(), "wss://"+host+"/exec/ns/web/main?command=both&output=1", c.header)
		if resp == nil || resp.StatusCode != c.status {
			t.Errorf("%s: %v %v, want %d", c.name, err, resp, c.status)
		}
		if conn != nil {
			conn.Close()
		}
	}
	for origin, want := range map[string]int{"": 200, "https://evil.example": 403} { // Origin is the site of the page whose form the browser sends
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/run/ns/web/main?cmd=ls", nil)
		must(t, err)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := b.client(&cert, "").Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("POST from %q: %d, want %d", origin, resp.StatusCode, want)
		}
	}
}

// hungTokens never answers.
type hungTokens struct {
	mu      sync.Mutex
	waiting int
	most    int
}

func (h *hungTokens) Create(ctx context.Context, _ *authnv1.TokenReview, _ metav1.CreateOptions) (*authnv1.TokenReview, error) {
	h.mu.Lock()
	h.waiting++
	h.most = max(h.most, h.waiting)
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.waiting--
	h.mu.Unlock()
	return nil, ctx.Err()
}

// The number of requests with unknown tokens that wait for a review is bounded. A request over the bound gets
// Retry-After, and an address that floods leaves slots for others.
func TestWaitingReviewsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens := &hungTokens{}
		s, err := server.New(server.Config{
			NodeName: "n1", Pods: &node{}, Log: slog.New(slog.DiscardHandler), Authorizer: server.AlwaysAllow{},
			Authenticator: server.NewAuthenticator(server.AuthnConfig{Tokens: tokens, Reviews: server.NewReviews(16)}),
		})
		must(t, err)
		var mu sync.Mutex
		refused := map[string]int{}
		var wg sync.WaitGroup
		ask := func(peer string, n int) {
			for i := range n {
				wg.Go(func() {
					r := httptest.NewRequest("GET", "/pods", nil)
					r.RemoteAddr = peer
					r.Header.Set("Authorization", "Bearer "+peer+strconv.Itoa(i))
					w := httptest.NewRecorder()
					s.Handler().ServeHTTP(w, r)
					if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "1" {
						mu.Lock()
						refused[peer]++
						mu.Unlock()
					}
				})
			}
			synctest.Wait()
		}
		ask("10.0.0.1:1", 1000)
		ask("10.0.0.2:1", 2)
		if tokens.most != 10 || refused["10.0.0.1:1"] != 992 || refused["10.0.0.2:1"] != 0 {
			t.Errorf("%d reviews at once, refused %v; want 8 for the address that floods and 2 for the other", tokens.most, refused)
		}
		for i := range 100 {
			ask(fmt.Sprintf("10.0.1.%d:1", i), 10)
		}
		if tokens.most != 16 {
			t.Errorf("%d reviews at once, want 16", tokens.most)
		}
		wg.Wait() // a review that gets no answer ends after its timeout
		ask("10.0.0.3:1", 1)
		if refused["10.0.0.3:1"] != 0 {
			t.Error("no slot came back")
		}
		wg.Wait()
	})
}

// Requests with bad credentials do not fill the log: some get a line of bounded length, and the rest are counted.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, err := server.New(server.Config{
			NodeName: "n1", Pods: &node{}, Log: slog.New(slog.NewTextHandler(&log, nil)), Authorizer: server.AlwaysAllow{},
			Authenticator: server.NewAuthenticator(server.AuthnConfig{Tokens: &tokens{}}),
		})
		must(t, err)
		ask := func() {
			r := httptest.NewRequest("GET", "/"+strings.Repeat("x", 10_000), nil)
			r.Header.Set("Authorization", "Bearer bad")
			s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
		for range 2000 {
			ask()
			time.Sleep(5 * time.Millisecond)
		}
		if n := strings.Count(log.String(), "unable to authenticate"); n < 10 || n > 40 {
			t.Errorf("%d lines for 2,000 requests in 10 s", n)
		}
		if log.Len() > 40<<10 {
			t.Errorf("%d bytes of log", log.Len())
		}
		time.Sleep(time.Minute)
		log.Reset()
		ask()
		if !strings.Contains(log.String(), "alsoNotLogged=") || strings.Contains(log.String(), "alsoNotLogged=0") {
			t.Errorf("what was not logged is not counted: %s", log.String())
		}
	})
}

// One /64 network of IPv6 addresses counts as one client, because a machine can have all 2^64 addresses of its network.
func TestOneIPv6NetworkIsOneClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens := &hungTokens{}
		s, err := server.New(server.Config{
			NodeName: "n1", Pods: &node{}, Log: slog.New(slog.DiscardHandler), Authorizer: server.AlwaysAllow{},
			Authenticator: server.NewAuthenticator(server.AuthnConfig{Tokens: tokens, Reviews: server.NewReviews(16)}),
		})
		must(t, err)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				r := httptest.NewRequest("GET", "/pods", nil)
				r.RemoteAddr = fmt.Sprintf("[2001:db8::%x]:1", i+1)
				r.Header.Set("Authorization", "Bearer "+strconv.Itoa(i))
				s.Handler().ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		synctest.Wait()
		if tokens.most != 8 {
			t.Errorf("%d reviews at once, want 8", tokens.most)
		}
		wg.Wait()
	})
}

// Connections that send nothing are bounded, and a client from another address is still served. Authorised clients do
// not count.
func TestUnknownConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 8
	b := newBench(t, func(c *server.Config, _ *bench) { c.UnknownConnections = limit })
	address := strings.TrimPrefix(b.url, "https://")
	closed := make(chan struct{}, 1000)
	from := func(ip string, n int) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		for range n {
			c, err := d.DialContext(t.Context(), "tcp", address)
			must(t, err)
			t.Cleanup(func() { c.Close() })
			go func() {
				_, _ = io.Copy(io.Discard, c)
				closed <- struct{}{}
			}()
		}
	}
	known := b.client(nil, "token-admin")
	if got := b.do(known, "GET", b.url+"/healthz"); got.status != 200 {
		t.Fatalf("before: %d", got.status)
	}
	from("127.0.0.2", 50)
	for range 50 - limit {
		select {
		case <-closed:
		case <-time.After(2 * time.Minute):
			t.Fatal("fewer connections were closed than there are too many")
		}
	}
	// A client at another address is authorised and keeps its connection.
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // test
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}).DialContext,
	}
	t.Cleanup(tr.CloseIdleConnections)
	if got := b.do(&http.Client{Transport: bearer{tr, "token-admin"}}, "GET", b.url+"/healthz"); got.status != 200 {
		t.Errorf("another address: %d", got.status)
	}
	if got := b.do(known, "GET", b.url+"/healthz"); got.status != 200 {
		t.Errorf("one that is known: %d", got.status)
	}
}

// A stream that carries no data for streamingConnectionIdleTimeout is cut, over every transport.
func TestIdleStreamsAreCut(t *testing.T) {
	t.Parallel()
	f := newFakeRuntime(t)
	b := newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Runtime, c.StreamIdle = asRuntime{f}, 300*time.Millisecond // streamingConnectionIdleTimeout
	})
	for kind, e := range executors(t, b, "/exec/ns/web/main?command=block&input=1&output=1") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			_, silent := net.Pipe()
			defer silent.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var out strings.Builder
			streams := remotecommand.StreamOptions{Stdin: silent, Stdout: &out}
			_ = e.StreamWithContext(ctx, streams)
			if ctx.Err() != nil || out.String() != "blocking" {
				t.Errorf("the idle stream is there after two minutes, or never was: %q", out.String())
			}
		})
	}
}
