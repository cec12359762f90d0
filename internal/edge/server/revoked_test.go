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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// grants is an Authorizer that answers with a right that may change, or with an error.
type grants struct {
	revoked, broken atomic.Bool
}

func (g *grants) Authorize(context.Context, server.Attributes) (bool, error) {
	if g.broken.Load() {
		return false, errors.New("the API server is away")
	}
	return !g.revoked.Load(), nil
}

// A client that follows a log gets no more of it soon after its user has lost the right to see it. While the API server cannot say whether the user
// still has it, the log goes on.
func TestAFollowedLogEndsWhenTheRightIsRevoked(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/containerLogs/ns/web/main", "/console/logs/ns/web/main"} {
		file := filepath.Join(t.TempDir(), "0.log")
		add := func(text string) {
			t.Helper()
			f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			must(t, err)
			_, err = f.WriteString("2026-01-02T03:04:05Z stdout F " + text + "\n")
			must(t, errors.Join(err, f.Close()))
		}
		add("first")
		synctest.Test(t, func(t *testing.T) {
			p, o := onePod()
			o.Containers[0].LogPath = file
			n := &node{pods: []*v1.Pod{p}}
			n.observe(o)
			log, rights := slog.New(slog.DiscardHandler), &grants{}
			s, err := server.New(server.Config{
				NodeName: "n1", Authenticator: anybody{}, Authorizer: rights, Pods: n, Enable: server.Enable{Debugging: true}, Log: log,
				Sources: server.Sources{Console: http.NotFoundHandler()},
			})
			must(t, err)
			l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
			ctx, cancel := context.WithCancel(context.Background())
			served := make(chan error, 1)
			go func() { served <- server.Serve(ctx, l, s.Handler(), server.ServeOptions{Log: log}) }()
			tr := &http.Transport{DialContext: l.dial}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node"+path+"?follow=true", nil)
			must(t, err)
			resp, err := tr.RoundTrip(req)
			must(t, err)
			lines := bufio.NewReader(resp.Body)
			expect := func(want string) {
				t.Helper()
				if got, err := lines.ReadString('\n'); err != nil || got != want+"\n" {
					t.Fatalf("%s: %q %v, want %q", path, got, err, want)
				}
			}
			expect("first")
			rights.broken.Store(true)
			time.Sleep(time.Hour)
			add("while the API server is away")
			expect("while the API server is away")
			rights.broken.Store(false)
			rights.revoked.Store(true)
			began := time.Now()
			late := time.AfterFunc(time.Hour, cancel) // ends the test if nothing else ends the log
			defer late.Stop()
			rest, err := io.ReadAll(lines)
			if took := time.Since(began); !errors.Is(err, io.ErrUnexpectedEOF) || len(rest) > 0 || took > 2*time.Minute {
				t.Errorf("%s: after the end of the right: %q %v after %s", path, rest, err, took)
			}
			_ = resp.Body.Close()
			tr.CloseIdleConnections()
			cancel()
			if err := <-served; err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}
