package trace

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// These constants bound what a Tracer stores.
const (
	maxWaiting  = 2048 // finished spans that wait for the collector
	maxStarting = 1024 // pods that have not started; if there are more, the traces of the oldest are ended
	maxText     = 256  // bytes of a name, an attribute or an error
)

// Config configures a Tracer.
type Config struct {
	// Send sends one request to the collector (OTLP's ExportTraceServiceRequest). Run calls it, one call at a time.
	Send func(ctx context.Context, request []byte) error
	// PerMillion is how many of a million traces are kept (tracing.samplingRatePerMillion).
	PerMillion int32
	// Resource describes the node; every request contains it.
	Resource []Attribute
	// Version is the version of this program.
	Version string
	Log     *slog.Logger
}

// Attribute is a fact about a span.
type Attribute struct{ Key, Value string }

// Tracer creates spans and sends those that have ended. Create it with New, then call Run.
type Tracer struct {
	cfg     Config
	bound   uint64 // a trace is kept if the number in its trace ID is below bound
	ended   chan *Span
	dropped atomic.Int64

	mu       sync.Mutex
	starting map[types.UID]*Span // the root spans of pods that have not started; a nil span means that the trace is not kept
	order    []types.UID         // the keys of starting, oldest first
}

// New returns a Tracer, or nil if cfg keeps no trace.
func New(cfg Config) *Tracer {
	if cfg.PerMillion <= 0 {
		return nil
	}
	bound := uint64(float64(min(cfg.PerMillion, million)) / million * (1 << 63))
	return &Tracer{cfg: cfg, bound: bound, ended: make(chan *Span, maxWaiting), starting: map[types.UID]*Span{}}
}

const million = 1_000_000

// Span is one step of a trace. One goroutine uses it at a time.
type Span struct {
	tracer     *Tracer
	trace      [16]byte
	id, parent [8]byte
	name       string
	kind       kind
	began, end time.Time
	attributes []Attribute
	failed     bool
	problem    string
}

// kind is the kind of a span, with OTLP's numbers.
type kind uint8

const (
	kindInternal kind = 1
	kindClient   kind = 3
)

type spanKey struct{}

// Action begins the span of an action on a pod, and returns a context that carries it. first says that the action is the first
// one of the pod's life, so it begins the trace of the pod's start.
func (t *Tracer) Action(ctx context.Context, ref pod.Ref, name string, first bool) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	t.mu.Lock()
	root, known := t.starting[ref.UID]
	if first && !known {
		root = t.root(ref, "pod start")
		t.keep(ref.UID, root)
		known = true
	}
	t.mu.Unlock()
	var s *Span
	if known {
		s = root.child(name, kindInternal)
	} else {
		s = t.root(ref, name)
	}
	if s == nil {
		return ctx, nil
	}
	return context.WithValue(ctx, spanKey{}, s), s
}

// Call begins the span of a call to the runtime, as a child of the span in ctx, and returns a context for the call, whose gRPC metadata
// contain the trace context. If ctx has no span, Call does nothing.
func (t *Tracer) Call(ctx context.Context, method string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	above, _ := ctx.Value(spanKey{}).(*Span)
	s := above.child(method, kindClient)
	if s == nil {
		return ctx, nil
	}
	s.Set("rpc.system", "grpc")
	s.Set("rpc.method", method)
	return metadata.AppendToOutgoingContext(ctx, "traceparent", s.parentHeader()), s
}

// Started ends the trace of a pod's start, because the pod runs.
func (t *Tracer) Started(uid types.UID) { t.finish(uid, "") }

// Gone ends the trace of a pod's start, if the pod never ran.
func (t *Tracer) Gone(uid types.UID) { t.finish(uid, "the pod ended before it had started") }

func (t *Tracer) finish(uid types.UID, problem string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	root, known := t.starting[uid]
	if known {
		delete(t.starting, uid)
		t.order = slices.DeleteFunc(t.order, func(u types.UID) bool { return u == uid })
	}
	t.mu.Unlock()
	root.finish(problem)
}

// Dropped returns how many spans were lost before the collector got them.
func (t *Tracer) Dropped() int64 {
	if t == nil {
		return 0
	}
	return t.dropped.Load()
}

// keep stores the root span of a pod's start, which is nil if the trace is not kept. If too many pods are starting, it ends the oldest
// trace. The caller holds the lock.
func (t *Tracer) keep(uid types.UID, root *Span) {
	t.starting[uid] = root
	t.order = append(t.order, uid)
	for len(t.order) > maxStarting {
		oldest := t.order[0]
		t.order = t.order[1:]
		if given, ok := t.starting[oldest]; ok && oldest != uid {
			delete(t.starting, oldest)
			given.finish("the pod took longer to start than many others")
		}
	}
}

// root begins a trace and returns its root span, or nil if this trace is not kept.
func (t *Tracer) root(ref pod.Ref, name string) *Span {
	s := &Span{tracer: t, name: name, kind: kindInternal, began: time.Now()}
	binary.BigEndian.PutUint64(s.trace[:8], rand.Uint64())
	binary.BigEndian.PutUint64(s.trace[8:], rand.Uint64()|1) // set one bit, because an ID of zeros is not valid
	if binary.BigEndian.Uint64(s.trace[8:])>>1 >= t.bound {
		return nil
	}
	s.number()
	s.Set("k8s.pod.uid", string(ref.UID))
	s.Set("k8s.pod.name", ref.Name)
	s.Set("k8s.namespace.name", ref.Namespace)
	return s
}

func (s *Span) number() { binary.BigEndian.PutUint64(s.id[:], rand.Uint64()|1) }

func (s *Span) child(name string, k kind) *Span {
	if s == nil {
		return nil
	}
	c := &Span{tracer: s.tracer, trace: s.trace, parent: s.id, name: name, kind: k, began: time.Now()}
	c.number()
	return c
}

// parentHeader returns the value of the header traceparent for calls below this span.
func (s *Span) parentHeader() string {
	return "00-" + hex.EncodeToString(s.trace[:]) + "-" + hex.EncodeToString(s.id[:]) + "-01"
}

// Set adds an attribute, unless its value is empty.
func (s *Span) Set(key, value string) {
	if s != nil && value != "" {
		s.attributes = append(s.attributes, Attribute{key, pod.TextMax(value, maxText)})
	}
}

// End ends the span. If err is not nil, the span has failed with this error.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	problem := ""
	if err != nil {
		s.failed, problem = true, err.Error()
	}
	s.finish(problem)
}

// finish ends the span and passes it to Run. problem is "" if the span succeeded.
func (s *Span) finish(problem string) {
	if s == nil {
		return
	}
	s.end, s.failed, s.problem = time.Now(), s.failed || problem != "", pod.TextMax(problem, maxText)
	select {
	case s.tracer.ended <- s:
	default:
		s.tracer.dropped.Add(1)
	}
}
