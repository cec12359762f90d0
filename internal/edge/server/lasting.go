package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// lasting is a listener that no passing error ends. net/http tries again where descriptors are short, and gives up on other
// errors (no memory for a socket, a packet filter's refusal): then the whole agent would end with one port.
type lasting struct {
	net.Listener
	ctx context.Context
	log *slog.Logger
}

// Accept fails when the listener is closed, or the agent ends.
func (l *lasting) Accept() (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil {
			return conn, err
		}
		l.log.Error("a connection cannot be accepted, trying again", "address", l.Addr().String(), "err", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}
