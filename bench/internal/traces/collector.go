package traces

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is one span of a trace.
type Span struct {
	Trace, ID, Parent string
	Service, Name     string // the program that sent the span, and what the span is about
	Begin, End        time.Time
	Attributes        map[string]string // those whose values are texts
	Failed            bool
}

// maxSpans bounds the spans that a Collector keeps.
const maxSpans = 100_000

// Collector is an OpenTelemetry collector that keeps the spans in memory. Its methods may be called concurrently.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer
	// Address is where the collector listens: host and port on the loopback interface.
	Address string

	server *grpc.Server
	mu     sync.Mutex
	spans  []Span
}

// Collect starts a Collector. Close ends it.
func Collect(ctx context.Context) (*Collector, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{Address: l.Addr().String(), server: grpc.NewServer()}
	collectorpb.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(l) }() // it returns when Close stops the server
	return c, nil
}

// Close ends the collector.
func (c *Collector) Close() { c.server.Stop() }

// Export keeps the spans of a request.
func (c *Collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range r.GetResourceSpans() {
		service := texts(from.GetResource().GetAttributes())["service.name"]
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if len(c.spans) == maxSpans {
					return &collectorpb.ExportTraceServiceResponse{}, nil
				}
				c.spans = append(c.spans, Span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Service: service, Name: s.GetName(), Attributes: texts(s.GetAttributes()),
					Begin: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
					Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
				})
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// texts returns the attributes whose values are texts.
func texts(in []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range in {
		if text, ok := a.GetValue().GetValue().(*commonpb.AnyValue_StringValue); ok {
			out[a.GetKey()] = text.StringValue
		}
	}
	return out
}

// PodStart returns the spans of the trace of a pod's start that have arrived; nil: the span of the whole start has not arrived.
func (c *Collector) PodStart(namespace, name string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s Span) bool {
		return s.Name == "pod start" && s.Attributes["k8s.namespace.name"] == namespace && s.Attributes["k8s.pod.name"] == name
	})
	if i < 0 {
		return nil
	}
	trace := c.spans[i].Trace
	return slices.DeleteFunc(slices.Clone(c.spans), func(s Span) bool { return s.Trace != trace })
}
