package simcri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Serve serves CRI over gRPC on l, and streams on a loopback address, until ctx ends. It closes l.
func (r *Runtime) Serve(ctx context.Context, l net.Listener) error {
	streamListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = l.Close()
		return fmt.Errorf("listen for streams: %w", err)
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	runtimeapi.RegisterRuntimeServiceServer(s, r)
	runtimeapi.RegisterImageServiceServer(s, r)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var streamErr error
	wg.Go(func() {
		streamErr = r.ServeStreams(ctx, streamListener, "")
		cancel()
	})
	wg.Go(func() {
		<-ctx.Done()
		s.Stop()
	})
	err = s.Serve(l)
	cancel()
	wg.Wait()
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CRI on %s: %w", l.Addr(), err)
	}
	return streamErr
}

// streams is the server of exec, attach and port-forward.
type streams struct {
	mu     sync.Mutex
	server streaming.Server
	base   *url.URL // nil: streams are not served
}

// ServeStreams serves exec, attach and port-forward on l until ctx ends. base is the URL at which callers reach l; "": the
// address of l.
func (r *Runtime) ServeStreams(ctx context.Context, l net.Listener, base string) error {
	if base == "" {
		base = "http://" + l.Addr().String()
	}
	handler, err := r.StreamHandler(base)
	if err != nil {
		_ = l.Close()
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 30 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve streams on %s: %w", l.Addr(), err)
	}
	return nil
}

// StreamHandler returns a handler for exec, attach and port-forward at the URL base. From then on, Exec, Attach and PortForward
// return URLs below base.
func (r *Runtime) StreamHandler(base string) (http.Handler, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse base URL of streams %q: %w", base, err)
	}
	r.streams.mu.Lock()
	r.streams.server, r.streams.base = nil, u
	r.streams.mu.Unlock()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		server, err := r.streamServer()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		server.ServeHTTP(w, req)
	}), nil
}

// streamServer returns the server of streams. It is made when it is first needed, because it is large and most runtimes never have a stream.
func (r *Runtime) streamServer() (streaming.Server, error) {
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	if u := r.streams.base; r.streams.server == nil && u != nil {
		cfg := streaming.DefaultConfig
		cfg.Addr, cfg.BaseURL = u.Host, u
		server, err := streaming.NewServer(cfg, streamer{r})
		if err != nil {
			return nil, fmt.Errorf("make stream server: %w", err)
		}
		r.streams.server = server
	}
	if r.streams.server == nil {
		return nil, status.Error(codes.FailedPrecondition, "streams are not served by this simulated runtime (ServeStreams was not called)")
	}
	return r.streams.server, nil
}

// running returns an error if the container does not run.
func (r *Runtime) running(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.runningContainer(id)
	return err
}

// runningContainer returns a container, or an error if it does not run. The caller holds the lock.
func (r *Runtime) runningContainer(id string) (*container, error) {
	c := find(r.containers, id)
	if c == nil {
		return nil, errNotFound("container", id)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.Unknown, "container is in %s state", c.state)
	}
	return c, nil
}

// Exec returns the URL of a stream to a command in a container.
func (r *Runtime) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	f, err := r.enter(ctx, "Exec", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	if err := r.running(req.ContainerId); err != nil {
		return nil, err
	}
	s, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	resp, err := s.GetExec(req)
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, resp)
}

// Attach returns the URL of a stream to the first process of a container.
func (r *Runtime) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	f, err := r.enter(ctx, "Attach", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	if err := r.running(req.ContainerId); err != nil {
		return nil, err
	}
	s, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	resp, err := s.GetAttach(req)
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, resp)
}

// PortForward returns the URL of a stream to a port of a sandbox.
func (r *Runtime) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	f, err := r.enter(ctx, "PortForward", r.ofSandbox(req.PodSandboxId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	sb := find(r.sandboxes, req.PodSandboxId)
	ready := sb != nil && !sb.stopped
	r.mu.Unlock()
	if !ready {
		return nil, errNotFound("sandbox", req.PodSandboxId)
	}
	s, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	resp, err := s.GetPortForward(req)
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, resp)
}
