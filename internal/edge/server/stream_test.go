package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	streamcommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// fakeRuntime is a fake runtime with a real streaming server. Its commands are Go functions of this test.
type fakeRuntime struct {
	streaming streaming.Server
	ended     chan string // commands that have ended
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	t.Helper()
	f := &fakeRuntime{ended: make(chan string, 1000)}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || strings.Contains(r.Header.Get("Sec-Websocket-Protocol"), "bearer") {
			t.Error("the client's credentials have reached the runtime")
		}
		f.streaming.ServeHTTP(w, r)
	}))
	conf := streaming.DefaultConfig
	conf.BaseURL = &url.URL{Scheme: "http", Host: srv.Listener.Addr().String()}
	var err error
	f.streaming, err = streaming.NewServer(conf, f)
	must(t, err)
	srv.Start()
	t.Cleanup(srv.Close)
	return f
}

func (f *fakeRuntime) ExecSync(_ context.Context, _ string, cmd []string) ([]byte, error) {
	if cmd[0] == "false" {
		return nil, errors.New("command exited with 1")
	}
	return []byte(strings.Join(cmd, "|")), nil
}

func (f *fakeRuntime) execURL(_ context.Context, id string, cmd []string, s server.Streams) (*url.URL, error) {
	if cmd[0] == "refuse" {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	r, err := f.streaming.GetExec(&runtimeapi.ExecRequest{
		ContainerId: id, Cmd: cmd, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY,
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(r.Url)
}

// asRuntime makes the fake a server.Runtime. It is a separate type, because methods of the streaming server have the same names.
type asRuntime struct{ f *fakeRuntime }

func (a asRuntime) Exec(ctx context.Context, id string, cmd []string, s server.Streams) (*url.URL, error) {
	return a.f.execURL(ctx, id, cmd, s)
}

func (a asRuntime) Attach(_ context.Context, id string, s server.Streams) (*url.URL, error) {
	r, err := a.f.streaming.GetAttach(&runtimeapi.AttachRequest{ContainerId: id, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(r.Url)
}

func (a asRuntime) PortForward(_ context.Context, id string, ports []int32) (*url.URL, error) {
	r, err := a.f.streaming.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: id, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(r.Url)
}

func (a asRuntime) ExecSync(ctx context.Context, id string, cmd []string) ([]byte, error) {
	return a.f.ExecSync(ctx, id, cmd)
}

// The streaming server calls the following methods.

func (f *fakeRuntime) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan streamcommand.TerminalSize) error {
	defer func() { f.ended <- cmd[0] }()
	switch cmd[0] {
	case "cat":
		n, err := io.Copy(out, in)
		fmt.Fprintf(out, "[%s end after %d]", id, n)
		return err
	case "both":
		fmt.Fprint(out, "to stdout")
		if errOut != nil {
			fmt.Fprint(errOut, "to stderr")
		}
		return nil
	case "exit":
		fmt.Fprint(out, "before")
		return utilexec.CodeExitError{Err: errors.New("exited with 42"), Code: 42}
	case "size":
		s := <-resize
		fmt.Fprintf(out, "%dx%d", s.Width, s.Height)
		return nil
	case "much":
		b := bytes.Repeat([]byte("0123456789abcdef"), 4096)
		for range 64 {
			if _, err := out.Write(b); err != nil {
				return err
			}
		}
		return nil
	case "block":
		fmt.Fprint(out, "blocking")
		_, _ = io.Copy(io.Discard, in)
		return nil
	}
	return fmt.Errorf("command %q not found", cmd)
}

func (f *fakeRuntime) Attach(_ context.Context, id string, in io.Reader, out, _ io.WriteCloser, tty bool, _ <-chan streamcommand.TerminalSize) error {
	fmt.Fprintf(out, "attached to %s tty=%v ", id, tty)
	if in != nil {
		_, err := io.Copy(out, in)
		return err
	}
	return nil
}

func (f *fakeRuntime) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	fmt.Fprintf(stream, "%s:%d ", id, port)
	_, err := io.Copy(stream, stream)
	return err
}

func streamBench(t *testing.T) (*bench, *fakeRuntime) {
	t.Helper()
	f := newFakeRuntime(t)
	b := newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Runtime = asRuntime{f}
	})
	return b, f
}

// executors returns the ways in which clients can run a command.
func executors(t *testing.T, b *bench, path string) map[string]remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(b.url + path)
	must(t, err)
	all := map[string]remotecommand.Executor{}
	all["SPDY"], err = remotecommand.NewSPDYExecutor(b.rest(), "POST", u)
	must(t, err)
	all["WebSocket v5"], err = remotecommand.NewWebSocketExecutor(b.rest(), "GET", u.String())
	must(t, err)
	all["WebSocket v4"], err = remotecommand.NewWebSocketExecutorForProtocols(b.rest(), "GET", u.String(), "v4.channel.k8s.io")
	must(t, err)
	return all
}

func TestExec(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	const out, in, errOut, tty = "&output=1", "&input=1", "&error=1", "&tty=1"
	for _, c := range []struct {
		name, query, stdin, out, err string
		code                         int
		noV4                         bool // the case does not work with protocol v4, in which a client cannot send the end of stdin
	}{
		{name: "stdin to its end", query: "command=cat" + in + out, stdin: strings.Repeat("hello ", 50_000), out: strings.Repeat("hello ", 50_000) + "[c1 end after 300000]", noV4: true},
		{name: "both outputs", query: "command=both" + out + errOut, out: "to stdout", err: "to stderr"},
		{name: "exit code", query: "command=exit" + out, out: "before", code: 42},
		{name: "size of the terminal", query: "command=size" + out + in + tty + errOut, out: "80x24"},
		{name: "much output", query: "command=much" + out, out: strings.Repeat("0123456789abcdef", 4096*64)},
	} {
		for kind, e := range executors(t, b, "/exec/ns/web/main?"+c.query) {
			if c.noV4 && kind == "WebSocket v4" {
				continue
			}
			t.Run(c.name+" over "+kind, func(t *testing.T) {
				t.Parallel()
				var stdout, stderr bytes.Buffer
				o := remotecommand.StreamOptions{Stdout: &stdout}
				if strings.Contains(c.query, in) {
					o.Stdin = strings.NewReader(c.stdin)
				}
				if strings.Contains(c.query, tty) {
					o.Tty, o.TerminalSizeQueue = true, &oneSize{}
				} else if strings.Contains(c.query, errOut) {
					o.Stderr = &stderr
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				err := e.StreamWithContext(ctx, o)
				var exit clientexec.CodeExitError
				if errors.As(err, &exit) && exit.Code == c.code {
					err = nil
				}
				if err != nil || exit.Code != c.code {
					t.Fatalf("error %v, want code %d", err, c.code)
				}
				if stdout.String() != c.out || stderr.String() != c.err {
					t.Errorf("got %d bytes %.80q, stderr %q; want %d bytes %.80q, %q", stdout.Len(), stdout.String(), stderr.String(), len(c.out), c.out, c.err)
				}
			})
		}
	}
}

type oneSize struct{ once sync.Once }

func (q *oneSize) Next() (size *remotecommand.TerminalSize) {
	q.once.Do(func() { size = &remotecommand.TerminalSize{Width: 80, Height: 24} })
	return size
}

func TestAttach(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	// The container's spec, not the client, decides whether there is a terminal.
	for path, want := range map[string]string{
		"/attach/ns/web/main?output=1&tty=1":       "attached to c1 tty=false ",
		"/attach/ns/web/uid-1/term?output=1":       "attached to c2 tty=true ",
		"/attach/ns/web/term?input=1&output=1":     "attached to c2 tty=true typed",
		"/attach/ns/web/uid-1/main?input&output=1": "attached to c1 tty=false ",
	} {
		for kind, e := range executors(t, b, path) {
			if kind == "WebSocket v4" {
				continue
			}
			var stdout bytes.Buffer
			o := remotecommand.StreamOptions{Stdout: &stdout, Tty: strings.Contains(path, "term")}
			if strings.Contains(path, "input=1") {
				o.Stdin = strings.NewReader("typed")
			}
			if err := e.StreamWithContext(t.Context(), o); err != nil || stdout.String() != want {
				t.Errorf("%s over %s: %v, %q; want %q", path, kind, err, stdout.String(), want)
			}
		}
	}
}

// A browser cannot set headers, so its token is a subprotocol. The runtime does not get the token.
func TestTokenAsSubprotocol(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	address := strings.Replace(b.url, "https", "wss", 1) + "/exec/ns/web/main?command=both&output=1"
	token := func(s string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(s))
	}
	for _, c := range []struct {
		protocols []string
		status    int
	}{
		{[]string{token("token-admin"), "v4.channel.k8s.io"}, 101},
		{[]string{token("token-admin"), "v5.channel.k8s.io"}, 101},
		{[]string{token("wrong"), "v5.channel.k8s.io"}, 401},
		{[]string{token("token-admin")}, 401},
		{[]string{token("token-admin"), token("token-admin"), "v4.channel.k8s.io"}, 401},
		{[]string{"base64url.bearer.authorization.k8s.io.!", "v4.channel.k8s.io"}, 401},
	} {
		d := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: c.protocols} //nolint:gosec // test
		conn, resp, err := d.DialContext(t.Context(), address, nil)
		if resp == nil || resp.StatusCode != c.status {
			t.Errorf("%v: %v %v, want %d", c.protocols, err, resp, c.status)
		}
		if conn != nil {
			if conn.Subprotocol() != c.protocols[1] {
				t.Errorf("protocol %q", conn.Subprotocol())
			}
			conn.Close()
		}
	}
}

func TestStreamRefusals(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	c := b.client(nil, "token-admin")
	for _, q := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"POST", "/exec/ns/gone/main?command=ls&output=1", 404, "pod does not exist\n"},
		{"POST", "/exec/ns/web/uid-0/main?command=ls&output=1", 404, "pod not found\n"},
		{"POST", "/exec/ns/web/gone?command=ls&output=1", 404, "container not found (\"gone\")\n"},
		{"POST", "/exec/ns/web/init?command=ls&output=1", 404, "container not found (\"init\")\n"}, // the container has ended
		{"POST", "/exec/ns/web/main?command=ls", 400, "you must specify at least 1 of stdin, stdout, stderr (query: input, output, error)\n"},
		{"POST", "/exec/ns/web/main?output=1", 400, "command: at least one is required\n"},
		{"POST", "/exec/ns/web/main?command=ls&output=1", 400, "Upgrade request required\n"},
		{"POST", "/exec/ns/web/main?command=refuse&output=1", 404, "rpc error: code = NotFound desc = no such container\n"},
		{"DELETE", "/exec/ns/web/main?command=ls&output=1", 405, "Method Not Allowed\n"},
		{"POST", "/attach/ns/web/gone?output=1", 404, "container not found (\"gone\")\n"},
		{"POST", "/portForward/ns/gone", 404, "pod does not exist\n"},
		{"POST", "/portForward/ns/web", 400, "Upgrade request required\n"},
		{"POST", "/run/ns/web/main?cmd=echo+a+b", 200, "echo|a|b"},
		{"POST", "/run/ns/web/main?cmd=false", 500, "command exited with 1\n"},
		{"POST", "/run/ns/web/main", 400, "cmd: a command is required\n"},
		{"GET", "/run/ns/web/main?cmd=ls", 405, "Method Not Allowed\n"},
	} {
		if got := b.do(c, q.method, b.url+q.path); got.status != q.status || got.body != q.body {
			t.Errorf("%s %s: %d %q, want %d %q", q.method, q.path, got.status, got.body, q.status, q.body)
		}
	}
}

// If the runtime's streaming server is down, sends a bad answer, or redirects, the client gets an error.
func TestBadStreamingServer(t *testing.T) {
	t.Parallel()
	var answer http.HandlerFunc
	var written atomic.Int64 // how many bytes of endless headers the streaming server has sent
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	t.Cleanup(evil.Close)
	target, err := url.Parse(evil.URL)
	must(t, err)
	b := newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Runtime = toURL{asRuntime{}, target}
	})
	for _, c := range []struct {
		answer http.HandlerFunc
		status int
	}{
		{func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "token expired", 404) }, 404},
		{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, 502},
		{func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, 502},
		{func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(conn, "nonsense\n\n")
			conn.Close()
		}, 502},
		{func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			defer conn.Close()
			_, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n")
			for line := []byte("X-More: " + strings.Repeat("x", 8<<10) + "\r\n"); err == nil; {
				_, err = conn.Write(line)
				written.Add(int64(len(line)))
			}
		}, 502},
	} {
		answer = c.answer
		for _, upgrade := range []http.Header{
			{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}},
			{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="}},
		} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/exec/ns/web/main?command=x&output=1", nil)
			must(t, err)
			req.Header = upgrade
			req.Header.Set("Authorization", "Bearer token-admin")
			tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}} //nolint:gosec // test
			resp, err := tr.RoundTrip(req)
			must(t, err)
			resp.Body.Close()
			tr.CloseIdleConnections()
			if resp.StatusCode != c.status {
				t.Errorf("%v: %d, want %d", upgrade.Get("Upgrade"), resp.StatusCode, c.status)
			}
			if l := resp.Header.Get("Location"); l != "" {
				t.Errorf("the client receives %s", l)
			}
		}
	}
	if n := written.Load(); n > 32<<20 { // the count includes what is in the buffers of the connections
		t.Errorf("%d bytes of headers were read", n)
	}
}

// toURL is a runtime that sends every exec to one URL.
type toURL struct {
	asRuntime
	u *url.URL
}

func (r toURL) Exec(context.Context, string, []string, server.Streams) (*url.URL, error) {
	return r.u, nil
}

// When the client disconnects, the command's streams end. When the server ends, the streams of clients and commands end.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	b, f := streamBench(t)
	for kind, e := range executors(t, b, "/exec/ns/web/main?command=block&input=1&output=1") {
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			stdin, w := io.Pipe()
			defer w.Close()
			done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: notify(seen)})
		}()
		<-seen
		cancel()
		<-done
		select {
		case <-f.ended:
		case <-time.After(2 * time.Minute):
			t.Errorf("%s: the command has not ended with its client", kind)
		}
	}
	var wg sync.WaitGroup
	for _, e := range executors(t, b, "/exec/ns/web/main?command=block&input=1&output=1") {
		seen := make(chan struct{})
		stdin, w := io.Pipe()
		t.Cleanup(func() { w.Close() })
		wg.Go(func() {
			_ = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: stdin, Stdout: notify(seen)})
		})
		<-seen
	}
	b.stop()  // stop must not wait for the streams
	wg.Wait() // wait until the clients have noticed the end
}

// notify returns a writer that closes a channel at the first byte.
func notify(c chan struct{}) io.Writer {
	var once sync.Once
	return writerFunc(func(b []byte) (int, error) {
		if len(b) > 0 {
			once.Do(func() { close(c) })
		}
		return len(b), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWebSocketsAreCounted(t *testing.T) {
	t.Parallel()
	f, reg := newFakeRuntime(t), prometheus.NewRegistry()
	b := newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Runtime, c.Registerer, c.Sources.Metrics = asRuntime{f}, reg, reg
	})
	e := executors(t, b, "/exec/ns/web/main?command=both&output=1")["WebSocket v5"]
	must(t, e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}))
	got := b.get("/metrics").body
	for _, want := range []string{
		`kubelet_websocket_streaming_requests_total{subresource="exec"} 1`,
		`kubelet_http_requests_total{long_running="true",method="GET",path="exec",server_type="readwrite"} 1`,
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="metrics",server_type="readwrite"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
}
