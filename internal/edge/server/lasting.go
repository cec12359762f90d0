package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// lasting is a listener that tries again after a temporary error.
type lasting struct {
	net.Listener
	ctx context.Context
	log *slog.Logger
}

// Lasting returns a listener for servers that end at the first error of Accept, although the next connection may be fine: the kernel lacks memory,
// or the client has gone. Its Accept logs such an error and tries again, until l is closed or ctx ends.
func Lasting(ctx context.Context, l net.Listener, log *slog.Logger) net.Listener {
	return &lasting{Listener: l, ctx: ctx, log: log}
}

// Accept returns an error only if the listener is closed or the agent ends.
func (l *lasting) Accept() (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil {
			return conn, err
		}
		l.log.Error("cannot accept a connection, will try again", "address", l.Addr().String(), "err", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}
