package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	remoteproto "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	spdyclient "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Names and limits of the two WebSocket protocols that the server translates.
const (
	tunnelPrefix = "SPDY/3.1+" // followed by a port-forward protocol of SPDY, whose bytes are sent in binary messages
	tunnelSuffix = ".k8s.io"

	// maxMessage bounds a message of a client. Messages of kubectl have at most 32 KiB.
	maxMessage    = 1 << 20
	socketBuffer  = 32 << 10
	pingUpstream  = 5 * time.Second
	lastWordsTime = 5 * time.Second
)

// speaksV5 reports whether a client offers v5.channel.k8s.io, which the streaming servers of runtimes do not speak.
func speaksV5(r *http.Request) bool {
	return isWebSocket(r) && slices.Contains(subprotocols(r), remoteproto.StreamProtocolV5Name)
}

// tunnelled lists the port-forward protocols of SPDY that a client offers to tunnel through a WebSocket.
func tunnelled(r *http.Request) (list []string) {
	if !isWebSocket(r) {
		return nil
	}
	for _, p := range subprotocols(r) {
		if rest, ok := strings.CutPrefix(p, tunnelPrefix); ok && strings.HasSuffix(rest, tunnelSuffix) {
			list = append(list, rest)
		}
	}
	return list
}

// askSPDY asks the runtime to switch to SPDY with one of the protocols.
func (s *Server) askSPDY(ctx context.Context, to *url.URL, protocols []string) (*upstream, error) {
	return s.ask(ctx, to, http.MethodPost, http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": protocols,
	})
}

// accept upgrades the client's request to a WebSocket. If accept fails, it has answered the request. It does not check the
// origin, because guard does (crossOrigin).
func accept(w http.ResponseWriter, r *http.Request, protocol string) (*websocket.Conn, error) {
	up := websocket.Upgrader{
		Subprotocols: []string{protocol}, CheckOrigin: func(*http.Request) bool { return true },
		ReadBufferSize: socketBuffer, WriteBufferSize: socketBuffer, HandshakeTimeout: dialTimeout,
	}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(maxMessage)
	return conn, nil
}

// tunnel carries the bytes of SPDY between the messages of a WebSocket and the runtime.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request, to *url.URL, protocols []string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	up, err := s.askSPDY(ctx, to, protocols)
	if !agreed(w, up, err) {
		return
	}
	defer up.Close() //nolint:errcheck // both sides have ended
	protocol := up.answer.Header.Get("X-Stream-Protocol-Version")
	if !slices.Contains(protocols, protocol) {
		http.Error(w, fmt.Sprintf("the container runtime chose protocol %q, not one of %q", protocol, protocols), http.StatusBadGateway)
		return
	}
	ws, err := accept(w, r, tunnelPrefix+protocol)
	if err != nil {
		return
	}
	client := &socketConn{Conn: ws.NetConn(), ws: ws}
	defer client.Close() //nolint:errcheck // both sides have ended
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	used, done := watchIdle(s.cfg.StreamIdle, cancel)
	defer done()
	up.in = metered{up.in, meterOf(false), used}
	join(client, metered{client, meterOf(false), used}, up, noLast)
}

// socketConn reads and writes a byte stream as binary messages of a WebSocket.
type socketConn struct {
	net.Conn
	ws      *websocket.Conn
	message io.Reader
}

// Read returns io.EOF when the client closes.
func (c *socketConn) Read(b []byte) (int, error) {
	for {
		if c.message == nil {
			kind, m, err := c.ws.NextReader()
			if err != nil {
				if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway) {
					return 0, io.EOF
				}
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("message is not binary")
			}
			c.message = m
		}
		n, err := c.message.Read(b)
		if err == io.EOF {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *socketConn) Write(b []byte) (int, error) {
	if err := c.ws.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseWrite sends a close message; the client answers with its own close message.
func (c *socketConn) CloseWrite() error {
	return c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(lastWordsTime))
}

// translate connects a client of v5.channel.k8s.io with the runtime's SPDY.
func (s *Server) translate(w http.ResponseWriter, r *http.Request, q streamRequest) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	up, err := s.askSPDY(ctx, q.url, []string{remoteproto.StreamProtocolV4Name})
	if !agreed(w, up, err) {
		return
	}
	defer up.Close() //nolint:errcheck // both sides have ended
	ws, err := accept(w, r, remoteproto.StreamProtocolV5Name)
	if err != nil {
		return
	}
	c := newChannels(ws, q.streams)
	defer c.close()
	var done func()
	c.used, done = watchIdle(s.cfg.StreamIdle, func() { cancel(errUnused(s.cfg.StreamIdle)) })
	defer done()
	// The end of ctx ends a write that waits for the client. The connection stays open, so that the client gets the reason.
	stop := context.AfterFunc(ctx, func() { _ = ws.NetConn().SetWriteDeadline(time.Now().Add(cutWithin)) })
	defer stop()

	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.close()
	wg.Go(func() {
		defer cancel(nil) // when the client is gone, the command's streams end
		c.receive()
	})
	to := &given{up: up}
	executor, err := remotecommand.NewSPDYExecutorForProtocols(to, spdyclient.NewUpgraderForStreaming(to), http.MethodPost, q.url, remoteproto.StreamProtocolV4Name)
	if err == nil {
		err = c.start()
	}
	if err == nil {
		err = executor.StreamWithContext(ctx, c.options())
	}
	if errors.Is(err, context.Canceled) || !to.answered.Load() && (err == nil || ctx.Err() != nil) {
		err = whyEnded(ctx)
	}
	c.end(ctx, err)
}

// given is a dialer that makes client-go use an existing connection for SPDY.
type given struct {
	up       *upstream
	answered atomic.Bool // the runtime has sent something in the error stream: the command's result
}

func (g *given) RoundTrip(*http.Request) (*http.Response, error) { return g.up.answer, nil }

func (g *given) NewConnection(*http.Response) (httpstream.Connection, error) {
	conn, err := spdy.NewClientConnectionWithPings(g.up, pingUpstream)
	if err != nil {
		return nil, err
	}
	return heardConnection{conn, g}, nil
}

// heardConnection is a connection to the runtime that notices whether the command's result comes. client-go takes the end of the error stream for
// the success of the command, even if the stream had no content because the connection broke.
type heardConnection struct {
	httpstream.Connection
	of *given
}

func (c heardConnection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	stream, err := c.Connection.CreateStream(headers)
	if err != nil || headers.Get(v1.StreamType) != v1.StreamTypeError {
		return stream, err
	}
	return heardStream{stream, c.of}, nil
}

type heardStream struct {
	httpstream.Stream
	of *given
}

func (s heardStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	if n > 0 {
		s.of.answered.Store(true)
	}
	return n, err
}

// channels transports the streams of a command in the messages of a WebSocket. The first byte of a message names the stream.
type channels struct {
	ws      *websocket.Conn
	streams Streams
	used    *idle
	done    chan struct{} // closed by close
	gone    chan struct{} // closed when the client will send nothing more
	once    sync.Once

	stdinR *io.PipeReader
	stdinW *io.PipeWriter
	sizes  chan remotecommand.TerminalSize

	writing sync.Mutex
}

func newChannels(ws *websocket.Conn, s Streams) *channels {
	c := &channels{
		ws: ws, streams: s, done: make(chan struct{}), gone: make(chan struct{}),
		sizes: make(chan remotecommand.TerminalSize),
	}
	c.stdinR, c.stdinW = io.Pipe()
	return c
}

// close closes the connection to the client, so that every read and write that waits for the client returns.
func (c *channels) close() {
	c.once.Do(func() {
		close(c.done)
		_ = c.stdinR.Close()
		_ = c.ws.Close()
	})
}

// start sends an empty message in the first channel that the client reads. It shows the client that it is connected.
func (c *channels) start() error {
	channel := byte(remoteproto.StreamErr)
	if c.streams.Stderr {
		channel = remoteproto.StreamStdErr
	}
	if c.streams.Stdout {
		channel = remoteproto.StreamStdOut
	}
	return c.send(channel, nil)
}

// options returns the streams in the form that client-go needs.
func (c *channels) options() remotecommand.StreamOptions {
	o := remotecommand.StreamOptions{Tty: c.streams.TTY}
	if c.streams.Stdin {
		o.Stdin = c.stdinR
	}
	if c.streams.Stdout {
		o.Stdout = channelWriter{c, remoteproto.StreamStdOut}
	}
	if c.streams.Stderr {
		o.Stderr = channelWriter{c, remoteproto.StreamStdErr}
	}
	if c.streams.TTY {
		o.TerminalSizeQueue = sizeQueue{c}
	}
	return o
}

// receive handles the client's messages, which are input and terminal sizes, until the connection ends.
func (c *channels) receive() {
	defer close(c.gone)
	defer c.stdinW.Close() //nolint:errcheck // never fails
	for {
		kind, m, err := c.ws.ReadMessage()
		if err != nil {
			return
		}
		if kind != websocket.BinaryMessage || len(m) == 0 {
			continue
		}
		c.used.touch()
		switch data := m[1:]; m[0] {
		case remoteproto.StreamStdIn:
			// If the command no longer reads its input, the pipe is closed and Write fails. The error is ignored, because the
			// client gets the command's end as a status.
			if c.streams.Stdin && len(data) > 0 {
				_, _ = c.stdinW.Write(data)
			}
		case remoteproto.StreamResize:
			var size remotecommand.TerminalSize
			if !c.streams.TTY || json.NewDecoder(bytes.NewReader(data)).Decode(&size) != nil {
				continue // without a terminal, sizes are dropped: nobody would read them, and later messages would wait behind them
			}
			select {
			case c.sizes <- size:
			case <-c.done:
				return
			}
		case remoteproto.StreamClose:
			if len(data) == 1 && data[0] == remoteproto.StreamStdIn {
				_ = c.stdinW.Close() // only v5 can send the end of stdin
			}
		}
	}
}

// send writes one message. It waits as long as the client takes to read it.
func (c *channels) send(channel byte, data []byte) error {
	return c.sendUntil(time.Time{}, channel, data)
}

// sendUntil writes one message by a deadline (zero: none). If a write of another message holds it up until then, it closes the connection: a write
// that has just begun would replace a deadline that is set here.
func (c *channels) sendUntil(end time.Time, channel byte, data []byte) error {
	if !end.IsZero() {
		late := time.AfterFunc(time.Until(end), func() { _ = c.ws.Close() })
		defer late.Stop()
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.ws.SetWriteDeadline(end) // never fails
	c.used.touch()
	m, err := c.ws.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	if _, err := m.Write([]byte{channel}); err != nil {
		return err
	}
	if _, err := m.Write(data); err != nil {
		return err
	}
	return m.Close()
}

// end sends the command's result and a close message. After the end of ctx, the client has less time to read them.
func (c *channels) end(ctx context.Context, err error) {
	b, jerr := json.Marshal(statusOf(err))
	if jerr != nil {
		return
	}
	within := lastWordsTime
	if ctx.Err() != nil {
		within = cutWithin
	}
	if c.sendUntil(time.Now().Add(within), remoteproto.StreamErr, b) != nil {
		return // the client is gone
	}
	_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(within))
	// Wait until the client has read the result and closed the connection. If the server closed it at once, the result could get lost.
	linger := min(lingerAfterEnd, within)
	_ = c.ws.SetReadDeadline(time.Now().Add(linger))
	_ = c.stdinR.Close() // makes receive discard further input
	t := time.NewTimer(linger)
	defer t.Stop()
	select {
	case <-c.gone:
	case <-t.C: // receive may be blocked on a terminal size that nobody reads, so do not wait for ever
	}
}

// statusOf returns the status that the error channel sends for the end of a command.
func statusOf(err error) metav1.Status {
	var exit exec.CodeExitError
	var status *apierrors.StatusError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: remoteproto.NonZeroExitCodeReason,
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", exit),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remoteproto.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus())},
			}},
		}
	case errors.As(err, &status):
		return status.Status()
	}
	return apierrors.NewInternalError(err).Status()
}

// channelWriter is an io.Writer that sends all it gets as messages of one channel.
type channelWriter struct {
	c       *channels
	channel byte
}

func (w channelWriter) Write(b []byte) (int, error) {
	if err := w.c.send(w.channel, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// sizeQueue passes the terminal's sizes to client-go.
type sizeQueue struct{ c *channels }

func (q sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case size := <-q.c.sizes:
		return &size
	case <-q.c.done:
		return nil
	}
}
