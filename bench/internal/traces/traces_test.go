package traces

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/trace"
)

// collector is a server of OpenTelemetry's trace service, from OpenTelemetry's generated code. It sends each request to got.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	got chan *collectorpb.ExportTraceServiceRequest
}

func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.got <- r
	return &collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{ErrorMessage: "none"}}, nil
}

// OpenTelemetry's generated code decodes every field that the agent sends.
func TestCollectorUnderstands(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{got: make(chan *collectorpb.ExportTraceServiceRequest, 1)}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	conn, err := trace.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tracer := trace.New(trace.Config{
		Send: conn.Send, PerMillion: 1_000_000, Version: "v1", Log: slog.New(slog.DiscardHandler),
		Resource: []trace.Attribute{{Key: "service.name", Value: "kubelet"}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- tracer.Run(ctx) }()
	began := time.Now()
	actx, action := tracer.Action(t.Context(), pod.Ref{Namespace: "default", Name: "web", UID: "u1"}, "run-sandbox", true)
	_, call := tracer.Call(actx, "RunPodSandbox")
	call.End(errors.New("no network"))
	action.End(nil)
	tracer.Started("u1")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var r *collectorpb.ExportTraceServiceRequest
	select {
	case r = <-c.got:
	case <-time.After(10 * time.Second):
		t.Fatal("the collector got nothing")
	}
	if n := tracer.Dropped(); n != 0 {
		t.Errorf("%d spans were dropped", n)
	}
	in := r.GetResourceSpans()[0]
	if a := in.GetResource().GetAttributes()[0]; a.GetKey() != "service.name" || a.GetValue().GetStringValue() != "kubelet" {
		t.Errorf("resource %v", a)
	}
	scope := in.GetScopeSpans()[0]
	if scope.GetScope().GetName() != "github.com/wherry-node/wherry" || scope.GetScope().GetVersion() != "v1" {
		t.Errorf("scope %v", scope.GetScope())
	}
	spans := scope.GetSpans()
	if len(spans) != 3 {
		t.Fatalf("%d spans", len(spans))
	}
	client, internal, root := spans[0], spans[1], spans[2]
	if client.GetName() != "RunPodSandbox" || client.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || client.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || client.GetStatus().GetMessage() != "no network" {
		t.Errorf("call %v", client)
	}
	if internal.GetName() != "run-sandbox" || internal.GetKind() != tracepb.Span_SPAN_KIND_INTERNAL || internal.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_OK {
		t.Errorf("action %v", internal)
	}
	if root.GetName() != "pod start" || len(root.GetParentSpanId()) != 0 || len(root.GetTraceId()) != 16 || len(root.GetSpanId()) != 8 || len(root.GetAttributes()) != 3 {
		t.Errorf("root %v", root)
	}
	if string(client.GetParentSpanId()) != string(internal.GetSpanId()) || string(internal.GetParentSpanId()) != string(root.GetSpanId()) || string(client.GetTraceId()) != string(root.GetTraceId()) {
		t.Errorf("the spans are not one below another: %v", spans)
	}
	if from, to := time.Unix(0, int64(root.GetStartTimeUnixNano())), time.Unix(0, int64(root.GetEndTimeUnixNano())); from.Before(began.Add(-time.Second)) || to.Before(from) || to.After(time.Now()) {
		t.Errorf("from %v to %v", from, to)
	}
	if root.GetFlags()&1 == 0 {
		t.Error("the root is not marked as kept")
	}
}
