package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/podsapi"
)

// shortOfMemory is a listener whose first connection cannot be accepted, because the kernel has no memory for it. It then accepts none, until it is closed.
type shortOfMemory struct {
	net.Listener
	second chan struct{} // closed when Accept is called again
	closed chan struct{}
	calls  int
}

func (s *shortOfMemory) Accept() (net.Conn, error) {
	if s.calls++; s.calls == 1 {
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept", syscall.ENOMEM)}
	}
	close(s.second)
	<-s.closed
	return nil, net.ErrClosed
}

func (s *shortOfMemory) Close() error { close(s.closed); return nil }

func (s *shortOfMemory) Addr() net.Addr { return &net.UnixAddr{Name: "pods-api.sock", Net: "unix"} }

// A connection to the Pods API that cannot be accepted does not end the agent, as it does not at the other ports.
func TestThePodsAPIOutlivesAConnectionThatCannotBeAccepted(t *testing.T) {
	t.Parallel()
	l := &shortOfMemory{second: make(chan struct{}), closed: make(chan struct{})}
	a := &Agent{log: slog.New(slog.DiscardHandler), deps: Deps{PodsAPI: l}}
	a.podsAPI = podsapi.New(nodePods{a}, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.servePodsAPI(ctx) }()
	select {
	case <-l.second:
	case err := <-ended:
		t.Fatalf("the Pods API has ended: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("at the agent's end: %v", err)
	}
}
