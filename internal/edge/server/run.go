package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// Listeners are the sockets on which a server answers; a nil one is left out. Run closes them.
type Listeners struct {
	// API is served with HTTPS (port 10250). If it is set, the field TLS must be set, too.
	API net.Listener
	TLS *tls.Config
	// Health is served without TLS (port 10248, loopback).
	Health net.Listener
	// ReadOnly is served without TLS to anybody (port 10255 if the configuration sets it).
	ReadOnly net.Listener
}

// These constants limit the times of connections, and how long Run may take to end.
const (
	headerTimeout   = 32 * time.Second
	idleTimeout     = 90 * time.Second
	requestTimeout  = 4 * time.Hour // time for a whole request or answer; streams and logs have no such limit
	maxHeaderBytes  = 1 << 20
	maxHTTP2Streams = 100
	shutdownTimeout = 3 * time.Second
	closedTimeout   = time.Second // time for a handler to notice that its connection is closed
)

// Run serves until ctx ends or a listener fails. Then it cuts streams and gives other requests three seconds. When it
// returns, nothing is left but handlers that hang in a system call (see Serve).
func (s *Server) Run(ctx context.Context, l Listeners) error {
	type port struct {
		name     string
		listener net.Listener
		handler  http.Handler
	}
	var ports []port
	if l.API != nil {
		if l.TLS == nil {
			return errors.New("server: Listeners.TLS is required with Listeners.API")
		}
		ports = append(ports, port{"api", l.API, s.Handler()})
	}
	if l.Health != nil {
		ports = append(ports, port{"health", l.Health, s.HealthHandler()})
	}
	if l.ReadOnly != nil {
		ports = append(ports, port{"read-only", l.ReadOnly, s.ReadOnlyHandler()})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(ports))
	var wg sync.WaitGroup
	for i, p := range ports {
		serve := func() {
			defer cancel() // if one port fails, Run ends the other ports
			var t *tls.Config
			if p.name == "api" {
				t = l.TLS
			}
			if err := Serve(ctx, p.listener, p.handler, ServeOptions{TLS: t, Log: s.cfg.Log, UnknownConnections: s.cfg.UnknownConnections}); err != nil {
				errs[i] = fmt.Errorf("serve %s port %s: %w", p.name, p.listener.Addr(), err)
			}
		}
		if i == len(ports)-1 {
			serve() // in this goroutine, because most nodes have only one port
		} else {
			wg.Go(serve)
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Begin serves HTTPS on a listener until ctx ends, as Run does, but returns at once, and needs no goroutine while there is no connection. The
// caller calls join after ctx has ended.
func (s *Server) Begin(ctx context.Context, l Follower, t *tls.Config) (join func() error) {
	return Follow(ctx, l, s.Handler(), ServeOptions{TLS: t, Log: s.cfg.Log, UnknownConnections: s.cfg.UnknownConnections})
}

// ServeOptions configures Serve and Follow.
type ServeOptions struct {
	TLS *tls.Config // TLS configuration of the listener; nil: plain HTTP
	Log *slog.Logger
	// UnknownConnections bounds the connections whose clients no Server has authorised yet; 0:
	// DefaultUnknownConnections.
	UnknownConnections int
}

// Serve serves a handler on a listener until ctx ends, which is no error, and closes the listener. The contexts of
// requests end with ctx, which cuts streams; other requests may end by themselves within three seconds. Then Serve
// closes the connections. It returns at most a second later, even if a handler hangs in a system call and cannot be
// ended; all other handlers have returned by then. Run uses it for each port. It is exported for callers that put many
// servers behind one listener.
func Serve(ctx context.Context, l net.Listener, h http.Handler, o ServeOptions) error {
	p := openPort(ctx, h, o, func() {})
	l = newBoundedListener(&lasting{Listener: l, ctx: ctx, log: o.Log}, o.UnknownConnections)
	return p.close(p.serve(l))
}

// Follower is a listener that calls a function for each connection, so that nobody has to wait in Accept. A process that listens on thousands
// of ports can save a goroutine for each.
type Follower interface {
	net.Listener
	// Follow calls accepted, which does not block, for each connection until the listener is closed.
	Follow(accepted func(net.Conn))
}

// Follow serves as Serve does, but returns at once, and needs no goroutine while there is no connection. The caller calls join after ctx has
// ended; join returns when Serve would. If connections cannot be served, the log says why at the first one, and join returns that error.
func Follow(ctx context.Context, l Follower, h http.Handler, o ServeOptions) (join func() error) {
	p := openPort(ctx, h, o, func() { _ = l.Close() })
	bounded := newBoundedListener(l, o.UnknownConnections)
	l.Follow(func(c net.Conn) {
		one := &single{Listener: l, conn: bounded.admit(c)}
		// serve begins to serve the connection, and returns with the error that there is no second one. Any other error is the reason why no
		// connection can be served.
		if err := p.serve(one); !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			p.fail(l.Addr(), err)
		}
		one.refuse()
	})
	return func() error {
		<-p.stopped
		p.mu.Lock()
		err := cmp.Or(p.failed, http.ErrServerClosed)
		p.mu.Unlock()
		return p.close(err)
	}
}

// single is a listener that returns one connection.
type single struct {
	net.Listener
	mu   sync.Mutex
	conn net.Conn // nil: Accept has returned it
}

// Accept returns the connection, and net.ErrClosed after that.
func (s *single) Accept() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil, net.ErrClosed
	}
	c := s.conn
	s.conn = nil
	return c, nil
}

// Close does nothing: the listener behind it stays open.
func (s *single) Close() error { return nil }

// refuse closes the connection if Accept has not returned it, because the server ends.
func (s *single) refuse() {
	if c, err := s.Accept(); err == nil {
		_ = c.Close()
	}
}

// servedPort is an HTTP server of one port.
type servedPort struct {
	srv      *http.Server
	handlers inFlight
	tls      bool
	ctx      context.Context
	log      *slog.Logger
	cut      context.CancelFunc // ends the contexts of all requests
	stopped  chan struct{}      // closed when the shutdown that begins with the end of ctx is over
	dismiss  func() bool        // prevents this shutdown; false: it has begun

	mu     sync.Mutex
	failed error // why Follow could not serve a connection; nil: it could serve all
}

// fail logs why Follow cannot serve connections, the first time.
func (p *servedPort) fail(at net.Addr, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
		p.log.Error("cannot serve connections", "address", at.String(), "err", err)
	}
}

// openPort returns a server for a port, which shuts down when ctx ends: it first calls stop.
func openPort(ctx context.Context, h http.Handler, o ServeOptions, stop func()) *servedPort {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	p := &servedPort{ctx: ctx, log: o.Log, cut: cut, stopped: make(chan struct{}), tls: o.TLS != nil}
	p.srv = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p.handlers.begin() {
				defer p.handlers.end()
				defer p.sayPanic(r)
				h.ServeHTTP(w, r)
			}
		}),
		TLSConfig:         o.TLS,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// Every request must reach the guard. Without this field, net/http itself would answer "OPTIONS *".
		DisableGeneralOptionsHandler: true,
		ConnContext:                  withConn,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2Streams},
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // most errors are failed handshakes
		BaseContext:                  func(net.Listener) context.Context { return base },
	}
	p.dismiss = context.AfterFunc(ctx, func() {
		defer close(p.stopped)
		stop()
		cut()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if p.srv.Shutdown(grace) != nil {
			_ = p.srv.Close()
			return
		}
		p.handlers.wait(grace) // wait for the handlers too, because Shutdown does not wait for the hijacked connections of streams
	})
	return p
}

// sayPanic logs a panic of a handler and lets it go on, so that the connection breaks. The log of net/http has such a panic too, but only among
// the failed handshakes of strangers, which nobody sees at the usual verbosity.
func (p *servedPort) sayPanic(r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler {
		p.log.Error("a request made the server panic", "method", methodLabel(r.Method), "path", clip(r.URL.Path), "panic", v, "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// serve serves the connections of a listener until it fails or the server has been shut down.
func (p *servedPort) serve(l net.Listener) error {
	if p.tls {
		return p.srv.ServeTLS(l, "", "")
	}
	return p.srv.Serve(l)
}

// close ends the server after serve has returned err, and returns the error of the port; nil: the server has been shut down.
func (p *servedPort) close(err error) error {
	if !p.dismiss() { // ctx has ended, so the shutdown has begun
		<-p.stopped
	}
	p.cut()
	_ = p.srv.Close()
	last, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), closedTimeout)
	defer cancel()
	if left := p.handlers.wait(last); left > 0 {
		p.log.Warn("server ends, but some requests hang and keep running", "requests", left)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// inFlight counts the handlers that are running.
type inFlight struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed when no handler runs any more; nil: wait was not called, and handlers may begin
}

// begin counts a handler and returns true, or returns false because the server ends.
func (f *inFlight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		return false
	}
	f.count++
	return true
}

func (f *inFlight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count--; f.count == 0 && f.idle != nil {
		close(f.idle)
	}
}

// wait stops new handlers from beginning and waits until all have ended or ctx ends. It returns how many still run.
func (f *inFlight) wait(ctx context.Context) int {
	f.mu.Lock()
	if f.idle == nil {
		if f.idle = make(chan struct{}); f.count == 0 {
			close(f.idle)
		}
	}
	f.mu.Unlock()
	select {
	case <-f.idle:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}
