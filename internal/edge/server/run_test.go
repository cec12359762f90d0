package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/proof/plant"
)

// Many nodes on one machine can share one HTTPS listener, which distinguishes the nodes by the address that a client connects to.
func TestManyServersBehindOneListener(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	nodes := map[string]http.Handler{}
	for i := 1; i <= 3; i++ {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-of-%d", i)}}
		reg := prometheus.NewRegistry()
		s, err := server.New(server.Config{
			NodeName: fmt.Sprintf("n%d", i), Authenticator: server.NewAuthenticator(server.AuthnConfig{Anonymous: true}),
			Authorizer: server.AlwaysAllow{}, Pods: &node{pods: []*v1.Pod{p}}, Registerer: reg, Log: log,
			Sources: server.Sources{Metrics: reg},
		})
		must(t, err)
		nodes[fmt.Sprintf("127.0.0.%d", i)] = s.Handler()
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to, _, _ := net.SplitHostPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
			nodes[to].ServeHTTP(w, r)
		}), server.ServeOptions{Log: log})
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	b := &bench{t: t}
	c := b.client(nil, "")
	for i := 1; i <= 3; i++ {
		got := b.do(c, "GET", fmt.Sprintf("http://127.0.0.%d:%s/pods", i, port))
		if want := fmt.Sprintf(`"name":"pod-of-%d"`, i); got.status != 200 || !contains(got.body, want) {
			t.Errorf("node %d: %d %s", i, got.status, got.body)
		}
		got = b.do(c, "GET", fmt.Sprintf("http://127.0.0.%d:%s/metrics", i, port))
		if !contains(got.body, `kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} 1`) {
			t.Errorf("node %d counts for others: %s", i, got.body)
		}
	}
	cancel()
	must(t, <-done)
}

// Requests that are in flight at the end get their answers, and no goroutine is left afterwards.
func TestServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble ends only when all of its goroutines have ended
		l := bufconn.Listen(1 << 16)
		ctx, cancel := context.WithCancel(context.Background())
		begun, finish := make(chan struct{}), make(chan struct{})
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done() // the server ends
			<-finish
			fmt.Fprint(w, "answer")
		})
		done := make(chan error, 1)
		go func() { done <- server.Serve(ctx, l, h, server.ServeOptions{Log: slog.New(slog.DiscardHandler)}) }()
		b := &bench{t: t}
		c := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) },
		}}
		got := make(chan answer, 1)
		go func() { got <- b.do(c, "GET", "http://node/") }()
		<-begun
		cancel()
		select {
		case <-done:
			t.Error("Serve has ended before its handler")
		case <-time.After(200 * time.Millisecond):
		}
		close(finish)
		if a := <-got; a.body != "answer" {
			t.Errorf("answer %q", a.body)
		}
		must(t, <-done)
		c.CloseIdleConnections()
	})
}

// A panic of a handler is in the log, with its place. A handler that only breaks its connection is not.
func TestAPanicIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		ctx, cancel := context.WithCancel(context.Background())
		var logged strings.Builder
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/break" {
				panic(http.ErrAbortHandler)
			}
			panic("no pod has this name")
		})
		done := make(chan error, 1)
		go func() {
			done <- server.Serve(ctx, l, h, server.ServeOptions{Log: slog.New(slog.NewTextHandler(&logged, nil))})
		}()
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }}
		for path, lines := range map[string]int{"/break": 0, "/pods/ns/x": 1} {
			before := strings.Count(logged.String(), "\n")
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node"+path, nil)
			must(t, err)
			if resp, err := tr.RoundTrip(req); err == nil {
				resp.Body.Close()
				t.Errorf("%s: it is answered with %d", path, resp.StatusCode)
			}
			synctest.Wait()
			if n := strings.Count(logged.String(), "\n") - before; n != lines {
				t.Errorf("%s: %d lines in the log, want %d:\n%s", path, n, lines, logged.String())
			}
		}
		for _, want := range []string{"level=ERROR", "path=/pods/ns/x", "no pod has this name", "TestAPanicIsLogged"} {
			if !contains(logged.String(), want) {
				t.Errorf("the log has no %q:\n%s", want, logged.String())
			}
		}
		cancel()
		must(t, <-done)
		tr.CloseIdleConnections()
	})
}

// A handler that ignores the end of its context and of its connection delays Serve only for the shutdown time.
func TestServeEndsBesideAHandlerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		ctx, cancel := context.WithCancel(context.Background())
		begun, stuck := make(chan struct{}), make(chan struct{})
		h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(begun)
			<-stuck
		})
		var logged strings.Builder
		done := make(chan error, 1)
		go func() {
			done <- server.Serve(ctx, l, h, server.ServeOptions{Log: slog.New(slog.NewTextHandler(&logged, nil))})
		}()
		c := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) },
		}}
		go func() {
			if resp, err := c.Get("http://node/"); err == nil {
				resp.Body.Close()
			}
		}()
		<-begun
		cancel()
		at := time.Now()
		must(t, <-done)
		if took := time.Since(at); took != 4*time.Second {
			t.Errorf("Serve returned after %v, want 4s", took)
		}
		if !contains(logged.String(), "requests=1") {
			t.Errorf("the log does not tell of the handler: %s", logged.String())
		}
		close(stuck)
		c.CloseIdleConnections()
	})
}

// A handler that really hangs in a system call, because it opens a pipe without a writer, delays Serve only for the shutdown time
// too.
func TestServeEndsBesideASystemCallThatHangs(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	begun, ended := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		defer close(ended)
		close(begun)
		fd, err := unix.Open(pipe, unix.O_RDONLY, 0)
		must(t, errors.Join(err, unix.Close(fd)))
	})
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, h, server.ServeOptions{Log: slog.New(slog.DiscardHandler)}) }()
	go func() {
		if resp, err := http.Get("http://" + l.Addr().String()); err == nil {
			resp.Body.Close()
		}
	}()
	<-begun
	cancel()
	plant.Returns(t, func() { must(t, <-done) })
	select {
	case <-ended:
		t.Error("the handler did not hang: the test shows nothing")
	default:
	}
	w, err := unix.Open(pipe, unix.O_WRONLY, 0) // opening the pipe for writing ends the reader's system call
	must(t, err)
	<-ended
	must(t, unix.Close(w))
}

// A listener that fails ends Run, and the error names its port.
func TestRunFails(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{
		NodeName: "n", Authenticator: server.NewAuthenticator(server.AuthnConfig{}), Authorizer: server.AlwaysAllow{},
		Pods: &node{}, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	broken := listen(t)
	must(t, broken.Close())
	err = s.Run(t.Context(), server.Listeners{Health: listen(t), ReadOnly: broken})
	if !errors.Is(err, net.ErrClosed) || !contains(err.Error(), "serve read-only port 127.0.0.1:") {
		t.Errorf("error %v", err)
	}
}

// pushed is a listener that passes on the connections of the test.
type pushed struct {
	net.Listener
	accepted func(net.Conn)
}

func (p *pushed) Follow(accepted func(net.Conn)) { p.accepted = accepted }

// A server on a listener that calls a function has no goroutine while there is no connection. Requests in flight at its end get their answers,
// and a connection that comes later is closed.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pushed{Listener: bufconn.Listen(1)}
		ctx, cancel := context.WithCancel(context.Background())
		begun, finish := make(chan struct{}), make(chan struct{})
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-finish
			fmt.Fprint(w, "answer")
		})
		before := runtime.NumGoroutine()
		join := server.Follow(ctx, l, h, server.ServeOptions{Log: slog.New(slog.DiscardHandler)})
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines without a connection, %d before", n, before)
		}
		dial := func() net.Conn {
			client, node := net.Pipe()
			l.accepted(node)
			return client
		}
		c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}}
		got := make(chan answer, 1)
		go func() { got <- (&bench{t: t}).do(c, "GET", "http://node/") }()
		<-begun
		cancel()
		synctest.Wait()
		if n, err := dial().Read(make([]byte, 1)); err == nil {
			t.Errorf("a connection after the end got %d bytes", n)
		}
		close(finish)
		if a := <-got; a.body != "answer" {
			t.Errorf("answer %q", a.body)
		}
		must(t, join())
		c.CloseIdleConnections()
	})
}

// A port that cannot serve its connections says so in the log, once, and at its end: here its TLS has no certificate.
func TestFollowSaysWhyItServesNothing(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	l := &pushed{Listener: bufconn.Listen(1)}
	join := server.Follow(ctx, l, nil, server.ServeOptions{TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		ours, theirs := net.Pipe()
		l.accepted(theirs)
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection: %v, want that it is closed", err)
		}
	}
	cancel()
	if err := join(); err == nil {
		t.Error("join does not return why nothing was served")
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "cannot serve connections") {
		t.Errorf("the log has %d errors, want one that says why:\n%s", n, log.String())
	}
}
