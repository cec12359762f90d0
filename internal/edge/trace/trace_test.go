package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// collector is a Send that records the names of the spans.
type collector struct {
	mu    sync.Mutex
	names []string
	fails error
	hangs bool
	calls int
}

func (c *collector) send(ctx context.Context, request []byte) error {
	c.mu.Lock()
	c.calls++
	fails, hangs := c.fails, c.hangs
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if fails != nil {
		return fails
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range messages(messages(messages([][]byte{request}, fieldResourceSpans), fieldScopeSpans), fieldSpans) {
		c.names = append(c.names, string(messages([][]byte{span}, fieldName)[0]))
	}
	return nil
}

func (c *collector) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func (c *collector) got() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.names, ", ")
}

// messages returns, from several encoded messages, all values of the field with this number.
func messages(in [][]byte, field protowire.Number) (out [][]byte) {
	for _, b := range in {
		for len(b) > 0 {
			n, kind, size := protowire.ConsumeTag(b)
			b = b[size:]
			rest := protowire.ConsumeFieldValue(n, kind, b)
			if n == field && kind == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(b)
				out = append(out, value)
			}
			b = b[rest:]
		}
	}
	return out
}

func newTracer(send func(context.Context, []byte) error) *Tracer {
	return New(Config{Send: send, PerMillion: million, Version: "v1", Log: slog.New(slog.DiscardHandler)})
}

func ref(name string) pod.Ref {
	return pod.Ref{Namespace: "default", Name: name, UID: types.UID("u-" + name)}
}

// running runs a tracer in the background. end stops the tracer, waits for the end of Run, and fails the test if Run failed.
func running(t *testing.T, tracer *Tracer) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- tracer.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The start of a pod is one trace: actions are below its root, calls below their action, and the calls carry the context. An
// action after the start is a trace of its own.
func TestStartOfAPod(t *testing.T) {
	t.Parallel()
	tracer := newTracer(nil)
	ctx, setUp := tracer.Action(t.Context(), ref("a"), "set-up", true)
	callCtx, call := tracer.Call(ctx, "Status")
	_, pull := tracer.Action(t.Context(), ref("a"), "pull-image", true)
	md, _ := metadata.FromOutgoingContext(callCtx)
	if got, want := md.Get("traceparent"), fmt.Sprintf("[00-%x-%x-01]", call.trace, call.id); fmt.Sprint(got) != want {
		t.Errorf("traceparent %v, want %s", got, want)
	}
	call.End(errors.New("refused"))
	setUp.End(nil)
	pull.End(nil)
	tracer.Started("u-a")
	tracer.Started("u-a") // a second call has no effect
	_, restart := tracer.Action(t.Context(), ref("a"), "start-container", false)
	restart.End(nil)
	var spans []*Span
	for len(tracer.ended) > 0 {
		spans = append(spans, <-tracer.ended)
	}
	if len(spans) != 5 {
		t.Fatalf("%d spans", len(spans))
	}
	root := spans[3]
	for i, want := range []struct {
		name   string
		parent [8]byte
		same   bool
		failed bool
	}{
		{"Status", spans[1].id, true, true}, {"set-up", root.id, true, false}, {"pull-image", root.id, true, false},
		{"pod start", [8]byte{}, true, false}, {"start-container", [8]byte{}, false, false},
	} {
		s := spans[i]
		if s.name != want.name || s.parent != want.parent || (s.trace == root.trace) != want.same || s.failed != want.failed || s.id == [8]byte{} {
			t.Errorf("span %d is %+v", i, s)
		}
	}
	if len(tracer.starting) != 0 {
		t.Errorf("%d pods are kept after their start", len(tracer.starting))
	}
}

// Config.PerMillion is how many of a million traces are kept, and a pod's start is kept completely or not at all.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []int32{0, -1} {
		if New(Config{PerMillion: rate}) != nil {
			t.Errorf("a rate of %d makes a tracer", rate)
		}
	}
	const traces = 20_000
	for _, rate := range []int32{10_000, 250_000, million, math.MaxInt32} {
		tracer := New(Config{PerMillion: rate})
		kept := 0
		for i := range traces {
			r := pod.Ref{UID: types.UID(fmt.Sprint(i))}
			ctx, first := tracer.Action(t.Context(), r, "set-up", true)
			_, call := tracer.Call(ctx, "Status")
			_, second := tracer.Action(t.Context(), r, "run-sandbox", false)
			if (first == nil) != (second == nil) || (first == nil) != (call == nil) {
				t.Fatalf("a part of a trace is kept: %t %t %t", first != nil, call != nil, second != nil)
			}
			if first != nil {
				kept++
			}
			tracer.Gone(r.UID)
			for len(tracer.ended) > 0 {
				<-tracer.ended
			}
		}
		want := float64(min(rate, million)) / million * traces
		if slack := 5*math.Sqrt(want) + 1; math.Abs(float64(kept)-want) > slack {
			t.Errorf("rate %d: %d of %d traces are kept, want about %.0f", rate, kept, traces, want)
		}
	}
}

// Spans are sent in batches, and the last ones when the agent ends.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		tracer := newTracer(c.send)
		end := running(t, tracer)
		span := func(name string) {
			_, s := tracer.Action(t.Context(), ref("a"), name, false)
			s.End(nil)
		}
		span("one")
		span("two")
		time.Sleep(batchWait + time.Second)
		if got := c.got(); got != "one, two" || c.requests() != 1 {
			t.Errorf("the collector has %q after %d requests", got, c.requests())
		}
		span("three")
		synctest.Wait()
		end()
		if got := c.got(); got != "one, two, three" || tracer.Dropped() != 0 {
			t.Errorf("the collector has %q at the end, %d were dropped", got, tracer.Dropped())
		}
	})
}

// If a collector hangs or refuses spans, spans are lost, but the agent does not wait and uses no more memory. When the collector works
// again, it gets the newer spans.
func TestBadCollectors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*collector{"hangs": {hangs: true}, "refuses": {fails: errors.New("no")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tracer := newTracer(c.send)
				end := running(t, tracer)
				began := time.Now()
				for i := range 3 * maxWaiting {
					_, s := tracer.Action(t.Context(), ref("a"), fmt.Sprint(i), false)
					s.End(nil)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("making spans waited for %v", took)
				}
				if tracer.Dropped() == 0 || len(tracer.ended) > maxWaiting {
					t.Errorf("%d spans wait, %d were dropped", len(tracer.ended), tracer.Dropped())
				}
				time.Sleep(time.Hour)
				if len(tracer.ended) != 0 || tracer.Dropped() != 3*maxWaiting {
					t.Errorf("after an hour %d spans wait, and %d were dropped", len(tracer.ended), tracer.Dropped())
				}
				c.mu.Lock()
				c.hangs, c.fails = false, nil
				c.mu.Unlock()
				_, s := tracer.Action(t.Context(), ref("a"), "later", false)
				s.End(nil)
				time.Sleep(time.Minute)
				if c.got() != "later" {
					t.Errorf("the collector has %q", c.got())
				}
				c.mu.Lock()
				c.hangs = true
				c.mu.Unlock()
				_, s = tracer.Action(t.Context(), ref("a"), "last", false)
				s.End(nil)
				synctest.Wait()
				began = time.Now()
				end()
				if took := time.Since(began); took > lastWithin {
					t.Errorf("the end waited %v", took)
				}
			})
		})
	}
}

// Pods that never start use a bounded amount of memory, and texts are bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	tracer := newTracer(nil)
	for i := range 3 * maxStarting {
		tracer.Action(t.Context(), pod.Ref{UID: types.UID(fmt.Sprint(i))}, "set-up", true)
	}
	if len(tracer.starting) != maxStarting || len(tracer.order) > maxStarting {
		t.Errorf("%d pods are kept, %d in order", len(tracer.starting), len(tracer.order))
	}
	_, s := tracer.Action(t.Context(), ref("a"), "x", false)
	s.Set("long", strings.Repeat("a", 1<<20))
	s.End(errors.New(strings.Repeat("b", 1<<20)))
	if n := len(s.message()); n > 2000 {
		t.Errorf("a span has %d bytes", n)
	}
}

// The trace of a pod that starts slowly goes on, however many other pods begin and start meanwhile: only pods that have not started count.
func TestAPodThatStartsSlowlyKeepsItsTrace(t *testing.T) {
	t.Parallel()
	tracer := newTracer(nil)
	tracer.Action(t.Context(), ref("slow"), "set-up", true)
	for i := range 3 * maxStarting {
		uid := types.UID(fmt.Sprint(i))
		tracer.Action(t.Context(), pod.Ref{UID: uid}, "set-up", true)
		tracer.Started(uid)
		<-tracer.ended
	}
	if len(tracer.starting) != 1 || len(tracer.order) != 1 {
		t.Errorf("%d pods are kept, %d in order, want the slow one", len(tracer.starting), len(tracer.order))
	}
	tracer.Started(ref("slow").UID)
	if len(tracer.ended) != 1 {
		t.Fatalf("%d spans have ended", len(tracer.ended))
	}
	if s := <-tracer.ended; s.failed {
		t.Errorf("the trace of the slow pod has failed: %s", s.problem)
	}
}

// Send sends one request of OTLP's service, and returns the collector's errors.
func TestSend(t *testing.T) {
	t.Parallel()
	type call struct {
		method string
		body   []byte
	}
	got := make(chan call, 1)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var body []byte
		if err := s.RecvMsg(&body); err != nil {
			return err
		}
		method, _ := grpc.MethodFromServerStream(s)
		got <- call{method, body}
		if string(body) == "refuse" {
			return status.Error(codes.ResourceExhausted, "full")
		}
		return s.SendMsg([]byte{})
	}))
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	c, err := Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(t.Context(), []byte("spans")); err != nil {
		t.Fatal(err)
	}
	if g := <-got; g.method != export || string(g.body) != "spans" {
		t.Errorf("the collector got %s %q", g.method, g.body)
	}
	if err := c.Send(t.Context(), []byte("refuse")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a refusal is %v", err)
	}
	if _, err := Dial("x://\x00"); err == nil {
		t.Error("a bad endpoint is accepted")
	}
}

// While tracing is off, it allocates nothing.
func TestOffCostsNothing(t *testing.T) {
	var tracer *Tracer
	ctx, r := t.Context(), ref("a")
	if n := testing.AllocsPerRun(100, func() {
		ctx, span := tracer.Action(ctx, r, "set-up", true)
		_, call := tracer.Call(ctx, "Status")
		call.Set("a", "b")
		call.End(nil)
		span.End(nil)
		tracer.Started(r.UID)
		tracer.Gone(r.UID)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOff(b *testing.B) {
	var tracer *Tracer
	ctx, r := b.Context(), ref("a")
	b.ReportAllocs()
	for b.Loop() {
		_, span := tracer.Action(ctx, r, "set-up", true)
		span.End(nil)
	}
}

func BenchmarkOn(b *testing.B) {
	tracer := newTracer(nil)
	ctx, r := b.Context(), ref("a")
	b.ReportAllocs()
	for b.Loop() {
		_, span := tracer.Action(ctx, r, "set-up", false)
		span.End(nil)
	}
}
