package server_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// runtimeLine is a connection to the runtime's streaming server. It ends after some bytes, or when the test cuts it.
type runtimeLine struct {
	net.Conn
	mu   sync.Mutex
	left int // bytes that may still be read; negative: any number
}

func (l *runtimeLine) Read(b []byte) (int, error) {
	l.mu.Lock()
	left := l.left
	l.mu.Unlock()
	if left == 0 {
		_ = l.Conn.Close()
		return 0, io.EOF
	}
	if left > 0 {
		b = b[:min(len(b), left)]
	}
	n, err := l.Conn.Read(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left -= n
	}
	return n, err
}

// lineBench returns a node whose connections to the runtime end after so many bytes (negative: never), and a function that cuts the last one.
func lineBench(t *testing.T, bytes int, idle time.Duration) (b *bench, cut func()) {
	t.Helper()
	f := newFakeRuntime(t)
	var mu sync.Mutex
	var last net.Conn
	b = newBench(t, func(c *server.Config, b *bench) {
		p, o := onePod()
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
		c.Runtime, c.StreamIdle = asRuntime{f}, idle
		c.Dial = func(ctx context.Context, u *url.URL) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
			mu.Lock()
			defer mu.Unlock()
			last = conn
			return &runtimeLine{Conn: conn, left: bytes}, err
		}
	})
	return b, func() {
		mu.Lock()
		defer mu.Unlock()
		_ = last.Close()
	}
}

// If the stream of a command ends before the command's result is known, kubectl gets an error that says why. Without it, kubectl would exit with
// code 0, as if the command had succeeded.
func TestAStreamThatEndsWithoutAResultIsAnError(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/exec/ns/web/main?command=block&input=1&output=1", "/attach/ns/web/main?input=1&output=1"} {
		for _, c := range []struct {
			why  string
			idle time.Duration
			want string // a part of the error
		}{
			{"the agent ends", 0, "the node's agent has ended"},
			{"the runtime ends", 0, "the container runtime has ended the stream"},
			{"no data for long", 100 * time.Millisecond, "no data for 100ms"},
		} {
			for _, kind := range []string{"SPDY", "WebSocket v5", "WebSocket v4"} {
				t.Run(path[1:5]+" over "+kind+", "+c.why, func(t *testing.T) {
					t.Parallel()
					b, cut := lineBench(t, -1, c.idle)
					seen, done := make(chan struct{}), make(chan error, 1)
					stdin, w := io.Pipe()
					t.Cleanup(func() { w.Close() })
					e := executors(t, b, path)[kind]
					go func() {
						done <- e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: stdin, Stdout: notify(seen)})
					}()
					var err error
					select {
					case <-seen:
						switch c.why {
						case "the agent ends":
							b.stop()
						case "the runtime ends":
							cut()
						}
						err = <-done
					case err = <-done:
					}
					if err == nil {
						t.Fatal("the client takes the end of the stream for the success of the command")
					}
					if !strings.Contains(err.Error(), c.want) {
						t.Errorf("error %q, want %q in it", err, c.want)
					}
				})
			}
		}
	}
}

// The same is true if the stream ends in the middle of much output, at any place of it.
func TestAStreamThatEndsInTheMiddleOfOutputIsAnError(t *testing.T) {
	t.Parallel()
	const path = "/exec/ns/web/main?command=much&output=1"
	for _, after := range []int{30_000, 65_543, 100_003, 1 << 20} {
		b, _ := lineBench(t, after, 0)
		for _, kind := range []string{"SPDY", "WebSocket v5", "WebSocket v4"} {
			var got bytes.Buffer
			err := executors(t, b, path)[kind].StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &got})
			if err == nil || !strings.Contains(err.Error(), "the container runtime has ended the stream") {
				t.Errorf("%s, after %d bytes: error %v, and %d bytes of output", kind, after, err, got.Len())
			}
		}
	}
}

// A server that ends is not held by a client that reads nothing of much output.
func TestAServerEndsBesideAClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"SPDY", "WebSocket v5", "WebSocket v4"} {
		b, _ := lineBench(t, -1, 0)
		seen := make(chan struct{})
		hold, done := make(chan struct{}), make(chan struct{})
		var once sync.Once
		go func() {
			defer close(done)
			_ = executors(t, b, "/exec/ns/web/main?command=much&output=1")[kind].StreamWithContext(t.Context(), remotecommand.StreamOptions{
				Stdout: writerFunc(func(b []byte) (int, error) {
					once.Do(func() { close(seen) })
					<-hold
					return len(b), nil
				}),
			})
		}()
		<-seen
		b.stop() // it fails the test if Run does not end
		close(hold)
		<-done
	}
}
