package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Listeners are where a server answers; a nil one is left out. Run closes them.
type Listeners struct {
	// API is served with TLS (port 10250); TLS is required with it.
	API net.Listener
	TLS *tls.Config
	// Health is served in the clear (port 10248, loopback).
	Health net.Listener
	// ReadOnly is served in the clear to anybody (port 10255 where asked for).
	ReadOnly net.Listener
}

// The bounds of connections and of the end of Run.
const (
	headerTimeout   = 32 * time.Second
	idleTimeout     = 90 * time.Second
	requestTimeout  = 4 * time.Hour // of a whole request or answer; streams and logs are not bound by it
	maxHeaderBytes  = 1 << 20
	maxHTTP2Streams = 100
	shutdownTimeout = 3 * time.Second
)

// Run serves until ctx ends or a listener fails. Then streams are cut, other requests get three seconds, and when Run
// returns nothing of it is left.
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
		wg.Go(func() {
			defer cancel() // one port that fails ends all
			var t *tls.Config
			if p.name == "api" {
				t = l.TLS
			}
			if err := Serve(ctx, p.listener, p.handler, ServeOptions{TLS: t, Log: s.cfg.Log}); err != nil {
				errs[i] = fmt.Errorf("serve %s port %s: %w", p.name, p.listener.Addr(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ServeOptions says how Serve serves.
type ServeOptions struct {
	TLS *tls.Config // nil: in the clear
	Log *slog.Logger
}

// Serve serves a handler on a listener, which it closes, until ctx ends; that is no error. Requests' contexts end with
// ctx, which cuts streams; what is not a stream may end by itself within three seconds. All handlers have returned
// when Serve returns. It is what Run does with each port, for those who put many servers behind one listener.
func Serve(ctx context.Context, l net.Listener, h http.Handler, o ServeOptions) error {
	var handlers sync.RWMutex // each holds it for reading; a writer that waits lets no other in
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if handlers.TryRLock() {
				defer handlers.RUnlock()
				h.ServeHTTP(w, r)
			}
		}),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2Streams},
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // handshakes that fail, mostly
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	ended := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		cut()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	})
	var err error
	if o.TLS != nil {
		srv.TLSConfig = o.TLS
		err = srv.ServeTLS(l, "", "")
	} else {
		err = srv.Serve(l)
	}
	close(ended)
	stopping.Wait()
	cut()
	_ = srv.Close()
	handlers.Lock() //nolint:staticcheck // for ever: nothing is served any more
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
