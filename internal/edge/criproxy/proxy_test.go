package criproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// bench is a proxy between a client and a runtime, in a synctest bubble.
type bench struct {
	*testing.T
	proxy *Proxy
	conn  *grpc.ClientConn // of the client

	mu    sync.Mutex
	ended []Call
}

// calls returns the calls that have ended, and forgets them.
func (b *bench) calls() []Call {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.ended
	b.ended = nil
	return calls
}

// inject makes a fault active.
func (b *bench) inject(f Fault) {
	b.Helper()
	if _, err := b.proxy.Inject(f); err != nil {
		b.Fatal(err)
	}
}

// heal ends all faults.
func (b *bench) heal() {
	b.Helper()
	if _, err := b.proxy.Heal(""); err != nil {
		b.Fatal(err)
	}
}

// runBench runs f with a client of a proxy, behind which is the runtime server.
func runBench(t *testing.T, server *grpc.Server, f func(b *bench)) {
	t.Helper()
	runtime := bufconn.Listen(1 << 16)
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(runtime) }()
	defer func() {
		server.Stop()
		if err := <-serving; err != nil {
			t.Error(err)
		}
	}()
	runBenchOn(t, runtime.DialContext, f)
}

// runBenchOn runs f with a client of a proxy that reaches the runtime with dial.
func runBenchOn(t *testing.T, dial func(context.Context) (net.Conn, error), f func(b *bench)) {
	t.Helper()
	b := &bench{T: t}
	var err error
	b.proxy, err = New(Config{Dial: dial, Log: slog.New(slog.DiscardHandler), Ended: func(c Call) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = append(b.ended, c)
	}})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.proxy.Serve(ctx, l) }()
	b.conn, err = grpc.NewClient("passthrough:///proxy", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = b.conn.Close()
	}()
	f(b)
}

// raw returns a message of these bytes.
func raw(text string) *frame { return &frame{data: mem.BufferSlice{mem.SliceBuffer([]byte(text))}} }

func (f *frame) text() string {
	defer f.data.Free()
	return string(f.data.Materialize())
}

// seen is what a runtime saw of a call.
type seen struct {
	method  string
	md      metadata.MD
	left    time.Duration // until the deadline; 0: there is none
	request []string
}

// echo returns a runtime of any method. It answers each message with the same message, twice, and ends the call with the error that end returns.
func echo(saw func(seen), end func() error) *grpc.Server {
	return grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxRecvMsgSize(64<<20), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var now seen
		now.method, _ = grpc.MethodFromServerStream(s)
		now.md, _ = metadata.FromIncomingContext(s.Context())
		if at, ok := s.Context().Deadline(); ok {
			now.left = time.Until(at)
		}
		_ = s.SetHeader(metadata.Pairs("h", "header"))
		s.SetTrailer(metadata.Pairs("t-bin", "\x00trailer"))
		for {
			f := &frame{}
			if err := s.RecvMsg(f); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
			text := f.text()
			now.request = append(now.request, text)
			for range 2 {
				if err := s.SendMsg(raw(text)); err != nil {
					return err
				}
			}
		}
		saw(now)
		return end()
	}))
}

// A call of any method passes through the proxy unchanged: its messages in both directions, deadline, metadata, headers, trailers, and status
// with details.
func TestCallsPassThrough(t *testing.T) {
	t.Parallel()
	failed, err := status.New(codes.ResourceExhausted, "no space: 100%\n").WithDetails(&runtimeapi.VersionRequest{Version: "a detail"})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []error{nil, failed.Err()} {
		for _, method := range []string{"/runtime.v1.RuntimeService/RunPodSandbox", "/runtime.v1.RuntimeService/OfTheFuture", "/other.API/Method"} {
			synctest.Test(t, func(t *testing.T) {
				var got seen
				runBench(t, echo(func(s seen) { got = s }, func() error { return end }), func(b *bench) {
					ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-1", "k-bin", "\xff\x00", "two", "1", "two", "2"), time.Minute)
					defer cancel()
					s, err := b.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(rawCodec{}))
					if err != nil {
						t.Fatal(err)
					}
					var answers []string
					for _, text := range []string{"one", "", "three"} {
						if err := s.SendMsg(raw(text)); err != nil {
							t.Fatal(err)
						}
					}
					if err := s.CloseSend(); err != nil {
						t.Fatal(err)
					}
					header, err := s.Header()
					if err != nil || !slices.Equal(header["h"], []string{"header"}) {
						t.Errorf("header %v: %v", header, err)
					}
					for {
						f := &frame{}
						if err = s.RecvMsg(f); err != nil {
							break
						}
						answers = append(answers, f.text())
					}
					if !slices.Equal(answers, []string{"one", "one", "", "", "three", "three"}) {
						t.Errorf("answers %q", answers)
					}
					if end == nil && err != io.EOF {
						t.Errorf("the end: %v", err)
					}
					if now := status.Convert(err); end != nil && (now.Code() != codes.ResourceExhausted || now.Message() != failed.Message() || len(now.Details()) != 1) {
						t.Errorf("the status is %v with %v, want %v", now, now.Details(), failed)
					}
					if !slices.Equal(s.Trailer()["t-bin"], []string{"\x00trailer"}) {
						t.Errorf("trailer %q", s.Trailer())
					}
					synctest.Wait()
					if got.method != method || got.left != time.Minute || !slices.Equal(got.request, []string{"one", "", "three"}) {
						t.Errorf("the runtime saw %+v", got)
					}
					for key, want := range map[string][]string{"traceparent": {"00-1"}, "k-bin": {"\xff\x00"}, "two": {"1", "2"}} {
						if diff := cmp.Diff(want, got.md[key]); diff != "" {
							t.Errorf("metadata %s: %s", key, diff)
						}
					}
					calls := b.calls()
					if len(calls) != 1 || calls[0].Request != 8 || calls[0].Answer != 16 || calls[0].Answers != 6 || calls[0].Code != status.Code(end) {
						t.Errorf("calls %+v", calls)
					}
				})
			})
		}
	}
}

// When a client gives up, the runtime's call is cancelled.
func TestCancellationPassesThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan time.Time, 1)
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			<-s.Context().Done()
			cancelled <- time.Now()
			return s.Context().Err()
		}))
		runBench(t, server, func(b *bench) {
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Hour, cancel)
			_, err := runtimeapi.NewRuntimeServiceClient(b.conn).Version(ctx, &runtimeapi.VersionRequest{})
			if status.Code(err) != codes.Canceled {
				t.Errorf("the call returned %v", err)
			}
			if at := <-cancelled; at.Sub(began) != time.Hour {
				t.Errorf("the runtime's call was cancelled after %s", at.Sub(began))
			}
		})
	})
}

// A message of 16 MiB passes; a larger one is an error, in both directions, and the proxy goes on.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runBench(t, echo(func(seen) {}, func() error { return nil }), func(b *bench) {
			send := func(text string) error {
				return b.conn.Invoke(t.Context(), "/runtime.v1.RuntimeService/Version", raw(text), &frame{}, grpc.ForceCodecV2(rawCodec{}))
			}
			if err := send(strings.Repeat("x", maxMessage+1)); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a message that is too large: %v", err)
			}
			if calls := b.calls(); len(calls) != 1 || calls[0].Code != codes.ResourceExhausted {
				t.Errorf("calls %+v", calls)
			}
		})
		large := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			f := &frame{}
			if err := s.RecvMsg(f); err != nil {
				return err
			}
			size := maxMessage
			if f.text() == "more" {
				size++
			}
			return s.SendMsg(&frame{data: mem.BufferSlice{mem.SliceBuffer(bytes.Repeat([]byte("x"), size))}})
		}))
		runBench(t, large, func(b *bench) {
			for text, want := range map[string]codes.Code{"fits": codes.OK, "more": codes.ResourceExhausted} {
				f := &frame{}
				err := b.conn.Invoke(t.Context(), "/runtime.v1.RuntimeService/Version", raw(text), f, grpc.ForceCodecV2(rawCodec{}))
				if status.Code(err) != want {
					t.Errorf("an answer that %s: %v", text, err)
				}
				if err == nil && f.data.Len() != maxMessage {
					t.Errorf("the answer has %d bytes", f.data.Len())
				}
			}
		})
	})
}

// simulated returns a server with a simulated runtime.
func simulated(r *simcri.Runtime) *grpc.Server {
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, r)
	runtimeapi.RegisterImageServiceServer(s, r)
	return s
}

func sandbox(name string) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}}}
}

// runSimulated runs f with a client of a proxy before a simulated runtime.
func runSimulated(t *testing.T, f func(b *bench, r *simcri.Runtime, c runtimeapi.RuntimeServiceClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := simcri.New(simcri.Config{})
		defer r.Close()
		runBench(t, simulated(r), func(b *bench) { f(b, r, runtimeapi.NewRuntimeServiceClient(b.conn)) })
	})
}

// Streams of CRI pass through the proxy: lists with several messages, and events as they happen.
func TestStreamsPassThrough(t *testing.T) {
	t.Parallel()
	runSimulated(t, func(b *bench, _ *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		events, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			b.Fatal(err)
		}
		synctest.Wait() // the runtime has the subscription
		const pods = 1001
		for i := range pods {
			if _, err := c.RunPodSandbox(b.Context(), sandbox(fmt.Sprint("pod-", i))); err != nil {
				b.Fatal(err)
			}
			for range 2 { // created, started
				if e, err := events.Recv(); err != nil || e.PodSandboxStatus.Metadata.Name != fmt.Sprint("pod-", i) {
					b.Fatalf("event of pod %d: %v, %v", i, e, err)
				}
			}
		}
		list, err := c.StreamPodSandboxes(b.Context(), &runtimeapi.StreamPodSandboxesRequest{})
		if err != nil {
			b.Fatal(err)
		}
		got, messages := 0, 0
		for {
			m, err := list.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			got, messages = got+len(m.PodSandboxes), messages+1
		}
		if got != pods || messages != 3 {
			b.Errorf("%d sandboxes in %d messages", got, messages)
		}
		if n, err := b.proxy.RunningPods(b.Context()); n != pods || err != nil {
			b.Errorf("%d pods run: %v", n, err)
		}
		s := b.proxy.State()
		if i := slices.IndexFunc(s.Methods, func(m MethodState) bool { return m.Method == methodEvents }); s.InFlight != 1 || i < 0 || s.Methods[i].InFlight != 1 || s.Connection != "READY" {
			b.Errorf("state %+v", s)
		}
	})
}

// While the runtime does not listen, calls fail with Unavailable and the reason. When it listens again, they succeed.
func TestRuntimeComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var runtime *bufconn.Listener
		dial := func(ctx context.Context) (net.Conn, error) {
			mu.Lock()
			l := runtime
			mu.Unlock()
			if l == nil {
				return nil, fmt.Errorf("connect to /run/x.sock: no such file")
			}
			return l.DialContext(ctx)
		}
		runBenchOn(t, dial, func(b *bench) {
			c := runtimeapi.NewRuntimeServiceClient(b.conn)
			down := func() {
				t.Helper()
				time.Sleep(time.Minute)
				if _, err := c.Version(t.Context(), &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "/run/x.sock: no such file") {
					t.Errorf("without a runtime: %v", err)
				}
				if s := b.proxy.State(); s.Connection != "TRANSIENT_FAILURE" && s.Connection != "CONNECTING" {
					t.Errorf("without a runtime the connection is %s", s.Connection)
				}
			}
			for range 3 {
				down()
				r := simcri.New(simcri.Config{})
				l, server := bufconn.Listen(1<<16), simulated(r)
				go func() { _ = server.Serve(l) }()
				mu.Lock()
				runtime = l
				mu.Unlock()
				time.Sleep(10 * time.Second)
				if _, err := c.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
					t.Errorf("with a runtime: %v", err)
				}
				mu.Lock()
				runtime = nil
				mu.Unlock()
				server.Stop()
				r.Close()
			}
			down()
		})
	})
}

// The end of the proxy ends calls that hang and streams that are open.
func TestServeEndsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := simcri.New(simcri.Config{})
		defer r.Close()
		var results chan error
		runBench(t, simulated(r), func(b *bench) {
			c := runtimeapi.NewRuntimeServiceClient(b.conn)
			b.inject(Fault{Method: "Version", Effect: Hang})
			b.inject(Fault{Method: "Status", Effect: LoseAnswer, For: 24 * time.Hour})
			results = make(chan error, 3)
			go func() {
				_, err := c.Version(t.Context(), &runtimeapi.VersionRequest{})
				results <- err
			}()
			go func() {
				_, err := c.Status(t.Context(), &runtimeapi.StatusRequest{})
				results <- err
			}()
			go func() {
				events, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
				if err == nil {
					_, err = events.Recv()
				}
				results <- err
			}()
			synctest.Wait()
			if s := b.proxy.State(); s.InFlight != 3 {
				t.Errorf("%d calls in flight", s.InFlight)
			}
		})
		for range 3 {
			if err := <-results; err == nil {
				t.Error("a call succeeded")
			}
		}
	})
}

// The number of calls in flight is bounded, and so is the number of methods that are counted by name.
func TestBounds(t *testing.T) {
	t.Parallel()
	runSimulated(t, func(b *bench, r *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
		b.inject(Fault{Method: "Version", Effect: Hang})
		var calls sync.WaitGroup
		for range maxCalls {
			calls.Go(func() {
				if _, err := c.Version(b.Context(), &runtimeapi.VersionRequest{}); err != nil {
					b.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := c.Status(b.Context(), &runtimeapi.StatusRequest{}); status.Code(err) != codes.ResourceExhausted {
			b.Errorf("one call more: %v", err)
		}
		b.heal()
		calls.Wait()
		if _, err := c.Status(b.Context(), &runtimeapi.StatusRequest{}); err != nil || r.Calls("Version") != maxCalls {
			b.Errorf("afterwards: %v, %d calls of Version", err, r.Calls("Version"))
		}
		for i := range 2 * maxMethods {
			for _, name := range []string{fmt.Sprint("Made", i), strings.Repeat("x", maxName+i)} {
				err := b.conn.Invoke(b.Context(), "/runtime.v1.RuntimeService/"+name, raw(""), &frame{}, grpc.ForceCodecV2(rawCodec{}))
				if status.Code(err) != codes.Unimplemented {
					b.Fatalf("%s: %v", name, err)
				}
			}
		}
		if s := b.proxy.State(); len(s.Methods) > maxMethods+1 {
			b.Errorf("%d methods", len(s.Methods))
		}
		b.inject(Fault{Method: "ListContainers", Effect: Refuse, Err: status.Error(codes.Aborted, "x")})
		if _, err := c.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.Aborted {
			b.Errorf("a fault of a method that is not counted by its name: %v", err)
		}
		b.heal()
		for i := range maxFaults {
			if _, err := b.proxy.Inject(Fault{Effect: Slow, Delay: time.Duration(i)}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := b.proxy.Inject(Fault{Effect: Slow}); err == nil {
			b.Error("the number of faults is not bounded")
		}
	})
}
