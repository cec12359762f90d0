package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

// anybody authenticates every request.
type anybody struct{}

func (anybody) Authenticate(*http.Request) (*authnv1.UserInfo, error) {
	return &authnv1.UserInfo{Username: "somebody"}, nil
}

// A client that follows a log gets new lines for as long as the container runs, also after the time that the server gives to other answers. When
// the agent ends, the answer breaks off. The API server, kubectl and wherry logs use HTTP/1.1.
func TestALogIsFollowedForHours(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	add := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = f.WriteString("2026-01-02T03:04:05Z stdout F " + text + "\n")
		must(t, errors.Join(err, f.Close()))
	}
	add("first")
	synctest.Test(t, func(t *testing.T) {
		p, o := onePod()
		o.Containers[0].LogPath = path
		n := &node{pods: []*v1.Pod{p}}
		n.observe(o)
		log := slog.New(slog.DiscardHandler)
		s, err := server.New(server.Config{
			NodeName: "n1", Authenticator: anybody{}, Authorizer: server.AlwaysAllow{}, Pods: n, Enable: server.Enable{Debugging: true}, Log: log,
		})
		must(t, err)
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- server.Serve(ctx, l, s.Handler(), server.ServeOptions{Log: log}) }()
		tr := &http.Transport{DialContext: l.dial}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/containerLogs/ns/web/main?follow=true", nil)
		must(t, err)
		resp, err := tr.RoundTrip(req)
		must(t, err)
		lines := bufio.NewReader(resp.Body)
		expect := func(want string) {
			t.Helper()
			if got, err := lines.ReadString('\n'); err != nil || got != want+"\n" {
				t.Fatalf("after %s: %q %v, want %q", time.Since(o.Began).Round(time.Hour), got, err, want)
			}
		}
		expect("first")
		for _, line := range []string{"five hours later", "ten hours later"} {
			time.Sleep(5 * time.Hour) // the server gives four hours to other answers
			add(line)
			expect(line)
		}
		cancel()
		if rest, err := io.ReadAll(lines); !errors.Is(err, io.ErrUnexpectedEOF) || len(rest) > 0 { // no regular end, because the container runs on
			t.Errorf("at the end of the server: %q %v, want %v", rest, err, io.ErrUnexpectedEOF)
		}
		_ = resp.Body.Close()
		tr.CloseIdleConnections()
		if err := <-served; err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("Serve: %v", err)
		}
	})
}
