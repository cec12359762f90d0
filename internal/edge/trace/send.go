package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// DefaultEndpoint is where a collector listens unless tracing.endpoint names another place.
const DefaultEndpoint = "localhost:4317"

// These constants say how Run sends.
const (
	batchSize  = 512              // spans in one request
	batchWait  = 5 * time.Second  // how long a span waits for other spans of its batch
	sendWithin = 10 * time.Second // time limit of one try
	tryAgain   = 5 * time.Second  // time between two tries
	tries      = 12               // number of tries for one batch, which is dropped after them
	lastWithin = time.Second      // time limit for the remaining spans when the agent ends
)

// Run sends the spans that have ended until ctx ends. Then it sends the remaining spans with one short try.
func (t *Tracer) Run(ctx context.Context) error {
	fails := false
	for {
		batch := t.batch(ctx)
		if ctx.Err() != nil {
			t.last(ctx, batch)
			return nil
		}
		err := t.deliver(ctx, batch)
		switch {
		case ctx.Err() != nil:
			t.dropped.Add(int64(len(batch)))
			return nil
		case err != nil && !fails:
			t.cfg.Log.Warn("the collector of traces does not take spans; they are dropped until it does (tracing.endpoint)", "err", err)
		case err == nil && fails:
			t.cfg.Log.Info("the collector of traces takes spans again")
		}
		if fails = err != nil; fails {
			t.dropped.Add(int64(len(batch)))
		}
	}
}

// batch waits for spans and returns at most batchSize of them.
func (t *Tracer) batch(ctx context.Context) (batch []*Span) {
	select {
	case <-ctx.Done():
		return nil
	case s := <-t.ended:
		batch = append(batch, s)
	}
	timer := time.NewTimer(batchWait)
	defer timer.Stop()
	for len(batch) < batchSize {
		select {
		case <-ctx.Done():
			return batch
		case <-timer.C:
			return batch
		case s := <-t.ended:
			batch = append(batch, s)
		}
	}
	return batch
}

// deliver sends one batch, and sends it again if that fails.
func (t *Tracer) deliver(ctx context.Context, batch []*Span) error {
	request := t.request(batch)
	for try := 1; ; try++ {
		err := t.send(ctx, sendWithin, request)
		if err == nil || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(tryAgain):
		}
	}
}

func (t *Tracer) send(ctx context.Context, within time.Duration, request []byte) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return t.cfg.Send(ctx, request)
}

// last sends the remaining spans when the agent ends.
func (t *Tracer) last(ctx context.Context, batch []*Span) {
	for left := true; left && len(batch) < maxWaiting; {
		select {
		case s := <-t.ended:
			batch = append(batch, s)
		default:
			left = false
		}
	}
	if len(batch) > 0 && t.send(context.WithoutCancel(ctx), lastWithin, t.request(batch)) != nil {
		t.dropped.Add(int64(len(batch)))
	}
}

// Collector is the connection to a collector that speaks OTLP over gRPC.
type Collector struct{ conn *grpc.ClientConn }

// Dial returns the connection to a collector, without TLS, as upstream's kubelet does. The connection is opened at the first
// request.
func Dial(endpoint string) (*Collector, error) {
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint %q: %w", endpoint, err)
	}
	return &Collector{conn}, nil
}

// Close closes the connection.
func (c *Collector) Close() error { return c.conn.Close() }

const (
	export    = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	maxAnswer = 64 << 10 // bytes
)

// Send sends one request.
func (c *Collector) Send(ctx context.Context, request []byte) error {
	var answer []byte
	return c.conn.Invoke(ctx, export, request, &answer, grpc.ForceCodecV2(raw{}))
}

// raw is the codec for messages that are already encoded.
type raw struct{}

var _ encoding.CodecV2 = raw{}

// Marshal returns v, which is a []byte.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("not bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal copies a message into v, which is a *[]byte.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("not bytes")
	}
	*b = data.Materialize()
	return nil
}

// Name returns the name of the encoding on the wire.
func (raw) Name() string { return "proto" }
