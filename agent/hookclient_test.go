package agent

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// answering simulates a server in a container: the function handles each connection. conn is the server's end; the connection is in
// memory.
type answering func(conn net.Conn)

func (f answering) DialContext(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go f(far)
	return near, nil
}

// An httpGet hook may take as long as the grace period of its container: the client waits until the container answers or the grace period
// is over.
func TestHooksAreBoundedByTheirGraceAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		grace, takes time.Duration
		ends         time.Duration
		fails        bool
	}{
		{5 * time.Minute, 2 * time.Minute, 2 * time.Minute, false},
		{5 * time.Minute, time.Hour, 5 * time.Minute, true},
		{30 * time.Second, 2 * time.Minute, 30 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.grace)
			defer cancel()
			client := hookClient{answering(func(conn net.Conn) {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				time.Sleep(c.takes)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})}
			began := time.Now()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://pod/drain", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if took := time.Since(began); took != c.ends || (err != nil) != c.fails {
				t.Errorf("grace %s, a hook of %s: ended after %s with %v", c.grace, c.takes, took, err)
			}
			if err == nil {
				_ = resp.Body.Close()
			}
			time.Sleep(c.takes) // waits until the goroutine of the container has written its answer and ended
		})
	}
}

// The hook client does not wait for the end of an endless body, it fails on endless headers and redirects, and it takes a redirect to another host as
// an answer. It follows other redirects, as upstream's kubelet does: a server may redirect the path of a hook to the one that does the work.
func TestHooksTakeAnyAnswer(t *testing.T) {
	t.Parallel()
	endless := func(start, again string) answering {
		return func(conn net.Conn) {
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				return
			}
			for _, err := io.WriteString(conn, start); err == nil; {
				_, err = io.WriteString(conn, again)
			}
		}
	}
	for name, c := range map[string]struct {
		dialer answering
		status int
	}{
		"body":    {endless("HTTP/1.1 200 OK\r\n\r\n", "0123456789abcdef"), 200},
		"headers": {endless("HTTP/1.1 200 OK\r\n", "X: 0123456789abcdef\r\n"), 0},
		"redirect": {func(conn net.Conn) {
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n")
			}
		}, 302},
		"redirect to a path": {func(conn net.Conn) {
			defer conn.Close()
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil && r.URL.Path == "/" {
				_, _ = io.WriteString(conn, "HTTP/1.1 301 Moved Permanently\r\nLocation: /drain/\r\nContent-Length: 0\r\n\r\n")
			} else if err == nil && r.URL.Path == "/drain/" {
				_, _ = io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
			}
		}, 202},
		"endless redirects": {func(conn net.Conn) {
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")
			}
		}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://pod/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := hookClient{c.dialer}.Do(req)
			if c.status == 0 {
				if err == nil {
					t.Errorf("%s: no error", name)
				}
				return
			}
			if err != nil || resp.StatusCode != c.status {
				t.Errorf("%s: %v %v", name, resp, err)
				return
			}
			_ = resp.Body.Close() // package perform also closes the body without reading the rest of the answer
		})
	}
}
