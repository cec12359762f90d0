package fleet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// Many HTTPS servers share one acceptor. Each answers on its own port, also by HTTP/2 and to many clients at once, and none needs a goroutine
// while it has no connection. After its end a port refuses connections, and the others go on.
func TestAcceptor(t *testing.T) { //nolint:paralleltest // it counts goroutines
	const ports = 100
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	a, err := newAcceptor(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	before := runtime.NumGoroutine()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.run(ctx)
	}()
	type port struct {
		door *door
		end  func()
	}
	var all []port
	for i := range ports {
		d, err := a.listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%d by %s", i, r.Proto) })
		ctx, cancel := context.WithCancel(ctx)
		join := server.Follow(ctx, d, h, server.ServeOptions{TLS: &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}, Log: slog.New(slog.DiscardHandler)})
		all = append(all, port{d, func() {
			cancel()
			if err := join(); err != nil {
				t.Error(err)
			}
		}})
	}
	atRest := func() {
		t.Helper()
		n := 0
		for range 100 { // in real time, because the sockets of the kernel cannot be in a synctest bubble
			if n = runtime.NumGoroutine() - before; n <= 1 {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("%d goroutines for %d ports without a connection, want 1", n, ports)
	}
	atRest()
	get := func(c *http.Client, i int) (string, error) {
		resp, err := c.Get("https://" + all[i].door.Addr().String() + "/")
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	wrong := make(chan error, ports)
	for i := range ports {
		go func() {
			transport := certificate.Client().Transport.(*http.Transport).Clone()
			transport.ForceAttemptHTTP2 = i%2 == 0
			want := fmt.Sprintf("%d by HTTP/%s", i, map[bool]string{true: "2.0", false: "1.1"}[i%2 == 0])
			var err error
			for range 20 {
				transport.CloseIdleConnections() // so that each request has a new connection
				got, failed := get(&http.Client{Transport: transport}, i)
				if failed != nil || got != want {
					err = fmt.Errorf("port %d: %q, want %q: %w", i, got, want, failed)
				}
			}
			transport.CloseIdleConnections()
			wrong <- err
		}()
	}
	for range ports {
		if err := <-wrong; err != nil {
			t.Error(err)
		}
	}
	atRest()
	all[0].end()
	if _, err := net.Dial("tcp", all[0].door.Addr().String()); err == nil {
		t.Error("a port that has ended accepts a connection")
	}
	if got, err := get(certificate.Client(), 1); err != nil || got == "" {
		t.Errorf("after the end of another port: %q, %v", got, err)
	}
	for _, p := range all[1:] {
		p.end()
	}
	cancel()
	<-ended
}
