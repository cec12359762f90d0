package rig

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
)

// Target is a server that answers HTTP and gRPC probes on all addresses of the machine, and counts them.
type Target struct {
	HTTP, GRPC int // ports

	served atomic.Int64
	web    *http.Server
	rpc    *grpc.Server
	wg     sync.WaitGroup
}

// NewTarget starts a Target. Close ends it.
func NewTarget() (*Target, error) {
	t := &Target{}
	web, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	rpc, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		_ = web.Close()
		return nil, err
	}
	t.HTTP, t.GRPC = web.Addr().(*net.TCPAddr).Port, rpc.Addr().(*net.TCPAddr).Port
	t.web = &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.served.Add(1) })}
	t.rpc = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		t.served.Add(1)
		return handle(ctx, req)
	}))
	healthgrpc.RegisterHealthServer(t.rpc, health.NewServer())
	t.wg.Go(func() { _ = t.web.Serve(web) })
	t.wg.Go(func() { _ = t.rpc.Serve(rpc) })
	return t, nil
}

// Served returns the number of probes since the previous call of Served.
func (t *Target) Served() int64 { return t.served.Swap(0) }

// Close ends the target.
func (t *Target) Close() {
	_ = t.web.Close()
	t.rpc.Stop()
	t.wg.Wait()
}
