package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// These are limits for the beginning and the end of a stream.
const (
	dialTimeout    = 10 * time.Second
	answerTimeout  = 30 * time.Second
	maxAnswerHead  = 256 << 10       // bytes of the status line and the headers of the runtime's answer
	maxRefusal     = 64 << 10        // bytes of the runtime's refusal that are passed on to the client
	lingerAfterEnd = 2 * time.Second // time for a client to read the runtime's last output
)

// dialFunc connects to the host of a URL, with TLS if the scheme is https.
type dialFunc func(ctx context.Context, u *url.URL) (net.Conn, error)

func dialURL(ctx context.Context, u *url.URL) (net.Conn, error) {
	addr, plain := u.Host, &net.Dialer{Timeout: dialTimeout}
	switch u.Scheme {
	case "http":
		if u.Port() == "" {
			addr = net.JoinHostPort(u.Hostname(), "80")
		}
		return plain.DialContext(ctx, "tcp", addr)
	case "https":
		if u.Port() == "" {
			addr = net.JoinHostPort(u.Hostname(), "443")
		}
		return (&tls.Dialer{NetDialer: plain, Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", addr)
	}
	return nil, fmt.Errorf("scheme %q of the runtime's streaming URL is neither http nor https", u.Scheme)
}

// upstream is the connection to the runtime's streaming server, from which the answer to the upgrade request has been read.
type upstream struct {
	net.Conn
	in     io.Reader // reads the bytes that follow the answer
	answer *http.Response
}

func (u *upstream) Read(b []byte) (int, error) { return u.in.Read(b) }

// upgraded reports whether the runtime has switched to the requested protocol.
func (u *upstream) upgraded() bool { return u.answer.StatusCode == http.StatusSwitchingProtocols }

// ask sends an upgrade request to the runtime and reads the answer. The connection is cut when ctx ends.
func (s *Server) ask(ctx context.Context, to *url.URL, method string, header http.Header) (*upstream, error) {
	conn, err := s.dial(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime's streaming server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	req := &http.Request{Method: method, URL: to, Host: to.Host, Header: header, ProtoMajor: 1, ProtoMinor: 1}
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	limited := &io.LimitedReader{R: conn, N: maxAnswerHead}
	in := bufio.NewReader(limited)
	err = req.Write(conn)
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(in, req)
	}
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, fmt.Errorf("ask the runtime's streaming server: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	limited.N = math.MaxInt64 // the limit was only for the answer: a stream may have any length
	return &upstream{Conn: cutConn{conn, stop}, in: in, answer: answer}, nil
}

// cutConn is a connection that is closed when a context ends. Its Close also ends the wait for that context.
type cutConn struct {
	net.Conn
	stop func() bool
}

// keep prevents that the connection is closed when the context of ask ends.
func (u *upstream) keep() {
	if c, ok := u.Conn.(cutConn); ok {
		c.stop()
	}
}

func (c cutConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// proxy connects an upgrade request of the client with the URL that the runtime gave, byte by byte. command is set if the stream is one of a command,
// which has a result.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, to *url.URL, command bool) {
	if !isUpgrade(r) {
		http.Error(w, "Upgrade request required", http.StatusBadRequest)
		return
	}
	// Only headers that the upgrade needs go to the runtime: no credentials, no cookies.
	header := http.Header{"Connection": {"Upgrade"}}
	for name, values := range r.Header {
		if name == "Upgrade" || name == "X-Stream-Protocol-Version" || strings.HasPrefix(name, "Sec-Websocket-") || name == "Origin" {
			header[name] = values
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	up, err := s.ask(ctx, to, r.Method, header)
	if !agreed(w, up, err) {
		return
	}
	defer up.Close() //nolint:errcheck // both sides have ended
	conn, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, fmt.Sprintf("unable to upgrade: %v", err), http.StatusInternalServerError)
		return
	}
	defer conn.Close() //nolint:errcheck // both sides have ended
	cut, last := func() { _ = conn.Close() }, noLast
	var in io.Reader = early.Reader
	if v := lastWordOf(r, up.answer); command && v != nil {
		up.in, in = seen{up.in, v.fromRuntime}, seen{in, v.fromClient}
		up.keep()
		cut = func() {
			_ = conn.SetWriteDeadline(time.Now().Add(cutWithin))
			_ = up.SetReadDeadline(time.Now())
		}
		last = func() (linger time.Duration) {
			if linger = cutWithin; ctx.Err() == nil {
				linger = lingerAfterEnd
				_ = conn.SetWriteDeadline(time.Now().Add(lastWordsTime))
			}
			v.close(conn, up, whyEnded(ctx))
			return linger
		}
	}
	stop := context.AfterFunc(ctx, cut)
	defer stop()
	if err := writeSwitch(conn, up.answer.Header); err != nil {
		return
	}
	used, done := watchIdle(s.cfg.StreamIdle, func() { cancel(errUnused(s.cfg.StreamIdle)) })
	defer done()
	up.in = metered{up.in, meterOf(isWebSocket(r)), used}
	join(conn, metered{in, meterOf(isWebSocket(r)), used}, up, last)
}

// agreed reports whether the runtime has upgraded the connection. If the runtime has not, agreed has answered the client with an
// error.
func agreed(w http.ResponseWriter, up *upstream, err error) bool {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return false
	}
	if !up.upgraded() {
		refuse(w, up.answer)
		_ = up.Close()
		return false
	}
	return true
}

// writeSwitch writes the answer 101 (Switching Protocols) to the client.
func writeSwitch(w io.Writer, header http.Header) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "HTTP/1.1 101 Switching Protocols\r\n")
	if err := header.Write(b); err != nil {
		return err
	}
	fmt.Fprintf(b, "\r\n")
	return b.Flush()
}

// refuse passes the runtime's refusal on to the client. It neither follows nor shows a redirect, because the client
// must not learn the runtime's URLs.
func refuse(w http.ResponseWriter, answer *http.Response) {
	defer answer.Body.Close() //nolint:errcheck // only read
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		http.Error(w, "the container runtime attempted to redirect this request, which is not permitted", http.StatusBadGateway)
		return
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v := answer.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	code := answer.StatusCode
	if code < 300 {
		code = http.StatusBadGateway // the runtime answered with success, but without the requested upgrade
	}
	w.WriteHeader(code)
	_, _ = io.Copy(w, io.LimitReader(answer.Body, maxRefusal)) // an error means that the client is gone
}

// noLast is the function for join that writes nothing.
func noLast() (linger time.Duration) { return lingerAfterEnd }

// join copies in both directions between two connections until one of them ends, and then ends the other one. When it returns, both
// directions have ended. in reads from the client, beginning with what the client has already sent. last is called when all that the runtime has
// sent is written to the client, and may write more. It returns how long the client may take to read that and to close the connection.
func join(client net.Conn, in io.Reader, up *upstream, last func() (linger time.Duration)) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(up.Conn, in) // ignore the error: the stream's own protocol reports errors
		_ = up.Close()
	})
	_, _ = io.Copy(client, up)
	linger := last()
	_ = up.Close() // a write of the other direction may wait for the runtime
	// The runtime has closed its connection. Close only the writing side of the client's connection, because a full close could lose
	// output that the client has not read yet.
	if c, ok := client.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
		_ = client.SetReadDeadline(time.Now().Add(linger))
	} else {
		_ = client.Close()
	}
	wg.Wait()
}

// isUpgrade reports whether a request wants to switch to another protocol.
func isUpgrade(r *http.Request) bool {
	for _, v := range r.Header.Values("Connection") {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), "upgrade") {
				return r.Header.Get("Upgrade") != ""
			}
		}
	}
	return false
}

// isWebSocket reports whether a request wants to switch to WebSocket.
func isWebSocket(r *http.Request) bool {
	return isUpgrade(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// subprotocols lists the subprotocols that a WebSocket client offers.
func subprotocols(r *http.Request) (list []string) {
	for _, v := range r.Header.Values("Sec-Websocket-Protocol") {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
	}
	return list
}
