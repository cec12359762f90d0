package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxMessage bounds a message in bytes. Kubelets have the same limit for the answers of a runtime.
	maxMessage = 16 << 20
	// maxHeaders bounds the headers and the trailers of a call in bytes.
	maxHeaders = 1 << 20
	// maxCalls bounds the calls in flight.
	maxCalls = 4096
)

// Config configures a Proxy.
type Config struct {
	// Dial opens a connection to the runtime.
	Dial func(context.Context) (net.Conn, error)
	Log  *slog.Logger
	// Ended, if it is not nil, is called for each call that has ended. It may be called concurrently and must not block.
	Ended func(Call)
}

// Proxy forwards the calls of CRI clients to a runtime, with faults.
type Proxy struct {
	cfg   Config
	conn  *grpc.ClientConn
	pumps sync.WaitGroup // what forwards requests

	mu         sync.Mutex
	faults     []*active
	methods    map[string]*counts
	inFlight   int
	eventsLost int
}

// New returns a Proxy. It does no IO.
func New(cfg Config) (*Proxy, error) {
	params := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	params.Backoff.BaseDelay, params.Backoff.MaxDelay = 100*time.Millisecond, time.Second
	conn, err := grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return cfg.Dial(ctx) }),
		grpc.WithConnectParams(params),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the runtime: %w", err)
	}
	return &Proxy{cfg: cfg, conn: conn, methods: map[string]*counts{}}, nil
}

// Serve serves clients on l until ctx ends, and closes l. Then it ends all calls and faults. The proxy cannot be used again.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(p.handle), // it gets every call, because no service is registered
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.WaitForHandlers(true))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		s.Stop()
	})
	wg.Go(func() { p.watchRuntime(ctx) })
	err := s.Serve(l)
	cancel()
	wg.Wait()
	p.pumps.Wait()
	_, _ = p.Heal("") // without a method there is no error
	_ = p.conn.Close()
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CRI on %s: %w", l.Addr(), err)
	}
	return nil
}

// watchRuntime keeps the proxy connected to the runtime, and logs when the connection is made or lost.
func (p *Proxy) watchRuntime(ctx context.Context) {
	answers, said := false, false
	for {
		s := p.conn.GetState()
		switch {
		case s == connectivity.Ready && !answers:
			answers, said = true, true
			p.cfg.Log.Info("the runtime accepts connections")
		case s == connectivity.TransientFailure && (answers || !said):
			answers, said = false, true
			p.cfg.Log.Warn("the runtime cannot be reached: calls fail with Unavailable until it can")
		case s == connectivity.Idle:
			p.conn.Connect()
		}
		if !p.conn.WaitForStateChange(ctx, s) {
			return
		}
	}
}

// RunningPods returns how many sandboxes of the runtime are ready. It asks the runtime itself: no fault affects it.
func (p *Proxy) RunningPods(ctx context.Context) (int, error) {
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	resp, err := runtimeapi.NewRuntimeServiceClient(p.conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{State: ready},
	})
	if err != nil {
		return 0, fmt.Errorf("count the pods of the runtime: %w", err)
	}
	return len(resp.Items), nil
}

// call is a call in flight.
type call struct {
	full, method string // the whole name, and the one under which it is counted
	events       bool   // its answers are events of containers
	began        time.Time
	fault        *active // nil: none affects the call
	counts       *counts

	request         atomic.Int64 // bytes
	answer, answers int64        // bytes and messages
	// pumped is closed when no more messages of the client are forwarded. Then refused says why one was not; nil: all were.
	pumped  chan struct{}
	refused error
}

// handle serves one call of any method.
func (p *Proxy) handle(_ any, client grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(client)
	c, err := p.begin(full)
	if err != nil {
		return err
	}
	err = p.serve(c, client)
	p.finish(c, err)
	return err
}

// begin counts a call and chooses its fault.
func (p *Proxy) begin(full string) (*call, error) {
	name, ofCRI := nameOf(full)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight >= maxCalls {
		return nil, status.Errorf(codes.ResourceExhausted, "the CRI proxy has %d calls in flight and takes no more", maxCalls)
	}
	counted, counts := p.countsOf(name)
	p.inFlight++
	counts.calls++
	counts.inFlight++
	c := &call{full: full, method: counted, events: name == methodEvents, began: time.Now(), counts: counts, pumped: make(chan struct{})}
	if c.fault = p.choose(name, counted, ofCRI); c.fault != nil {
		counts.faulted++
	}
	return c, nil
}

// finish counts the end of a call, and reports it.
func (p *Proxy) finish(c *call, err error) {
	done := Call{
		Began: c.began, Took: time.Since(c.began), Method: c.method, Code: status.Code(err),
		Request: c.request.Load(), Answer: c.answer, Answers: c.answers,
	}
	if c.fault != nil {
		done.Fault = c.fault.text
	}
	p.mu.Lock()
	p.inFlight--
	c.counts.inFlight--
	c.counts.total += done.Took
	c.counts.longest = max(c.counts.longest, done.Took)
	if err != nil {
		c.counts.failed++
	}
	p.mu.Unlock()
	p.cfg.Log.Debug("call", "method", done.Method, "code", done.Code, "took", done.Took, "request", done.Request, "answer", done.Answer, "fault", done.Fault)
	if p.cfg.Ended != nil {
		p.cfg.Ended(done)
	}
}

// serve applies the fault of a call and forwards the call.
func (p *Proxy) serve(c *call, client grpc.ServerStream) error {
	f := c.fault
	if f == nil {
		return p.forward(c, client)
	}
	ctx := client.Context()
	if f.Effect == LoseAnswer {
		if err := p.drop(c, client); err != nil {
			return err
		}
		return f.lost(ctx)
	}
	healed, err := f.hold(ctx)
	switch {
	case err != nil:
		return err
	case f.Effect == Refuse && !healed:
		return f.Err
	}
	return p.forward(c, client)
}

// forward forwards a call to the runtime, and the answers of the runtime to the client.
func (p *Proxy) forward(c *call, client grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	runtime, err := p.open(ctx, c, client)
	if err != nil {
		return err
	}
	err = p.answer(c, client, runtime)
	if why := c.whyRefused(client); why != nil {
		return why
	}
	return err
}

// drop forwards a call to the runtime and drops its answer: all up to the first message or the end. The error means that the call may not
// have reached the runtime.
func (p *Proxy) drop(c *call, client grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	runtime, err := p.open(ctx, c, client)
	if err != nil {
		return err
	}
	f := &frame{}
	if runtime.RecvMsg(f) == nil {
		f.data.Free()
	}
	return c.whyRefused(client)
}

// whyRefused returns why a message of the client was not forwarded; nil: all were. It is called when the runtime has answered.
func (c *call) whyRefused(client grpc.ServerStream) error {
	if client.Context().Err() == nil { // it has an error after each message that cannot be received
		return nil
	}
	<-c.pumped
	return c.refused
}

// open begins a call to the runtime, with the deadline and the metadata of the client, and starts to forward the messages of the client.
func (p *Proxy) open(ctx context.Context, c *call, client grpc.ServerStream) (grpc.ClientStream, error) {
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	md.Delete("grpc-accept-encoding")          // each connection has its own
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	runtime, err := p.conn.NewStream(metadata.NewOutgoingContext(ctx, md), both, c.full, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return nil, err
	}
	p.pumps.Go(func() {
		defer close(c.pumped)
		c.refused = c.pump(client, runtime)
	})
	return runtime, nil
}

// pump forwards the messages of the client to the runtime until the client has sent its last one. The error means that a message of the
// client cannot be received, for example because it is too large.
func (c *call) pump(client grpc.ServerStream, runtime grpc.ClientStream) error {
	for {
		f := &frame{}
		err := client.RecvMsg(f)
		if errors.Is(err, io.EOF) {
			_ = runtime.CloseSend() // it always succeeds
			return nil
		}
		switch status.Code(err) {
		case codes.OK:
		case codes.Canceled, codes.DeadlineExceeded: // the call is over
			return nil
		default:
			return err
		}
		c.request.Add(int64(f.data.Len()))
		if runtime.SendMsg(f) != nil { // the call is over, and answer gets its status
			return nil
		}
	}
}

// answer forwards headers, messages, trailers and status of the runtime to the client.
func (p *Proxy) answer(c *call, client grpc.ServerStream, runtime grpc.ClientStream) error {
	if md, err := runtime.Header(); err == nil && len(md) > 0 {
		if err := client.SendHeader(md); err != nil {
			return err
		}
	}
	for {
		f := &frame{}
		if err := runtime.RecvMsg(f); err != nil {
			client.SetTrailer(runtime.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if c.events && p.losesEvent() {
			f.data.Free()
			continue
		}
		c.answers++
		c.answer += int64(f.data.Len())
		if err := client.SendMsg(f); err != nil {
			return err
		}
	}
}
