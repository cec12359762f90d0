package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
)

// poorListener returns some errors before it accepts connections.
type poorListener struct {
	net.Listener
	errs []error
}

func (l *poorListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept", err)}
	}
	return l.Listener.Accept()
}

// An error of one Accept ends neither the server of the port nor the agent. Closing the listener ends the server.
func TestAPortOutlivesAConnectionThatCannotBeAccepted(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	last := func(ctx context.Context, l net.Listener) net.Listener {
		return &lasting{l, ctx, slog.New(slog.DiscardHandler)}
	}
	l := last(t.Context(), &poorListener{inner, []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM}})
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := last(ended, &poorListener{inner, []error{syscall.ENOMEM}}).Accept(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("after the agent's end: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
