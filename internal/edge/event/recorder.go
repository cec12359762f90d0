package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/stack"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
)

// These constants limit the tries to send an event and the time between them, the events that may wait, and the requests at a time.
const (
	tries   = 12
	between = 10 * time.Second
	waiting = 1000
	lanes   = 4
)

// tidyEvery is the least time between two searches for what the Recorder need not remember any more.
const tidyEvery = time.Minute

// API writes the events of one namespace. Calls may come concurrently.
type API interface {
	Create(ctx context.Context, ev *v1.Event, opts metav1.CreateOptions) error
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions) error
}

// Config configures a Recorder.
type Config struct {
	API func(namespace string) API
	// Source is the component and host that the events name as their source.
	Source v1.EventSource
	// Before, if set, is called before an event is sent. It must return soon, because the other events of its queue wait.
	Before func(ctx context.Context, ref *v1.ObjectReference, eventType, reason string)
	// Keep also gets each event, before it is sent; nil: none. It is for a page about the node, which shows what the node reports even
	// while the API server is away.
	Keep *Local
	// Rate bounds the requests; nil: no bound.
	Rate *rate.Limiter
	// Turn, if set, is called before each request, and returns when the request may be sent, or when ctx ends, with an error. The Recorder
	// calls done when the request has been answered. The events of several agents can wait there for what is more urgent.
	Turn func(ctx context.Context) (done func(), err error)
	// Clock is the node's clock, for the times in events.
	Clock nodeclock.Clock
	// Log gets a line for each event that is sent, at -v=2, and a warning for each one that the API server refuses or
	// that is lost; nil: no lines.
	Log *slog.Logger
}

// Recorder sends events to the API server. Repeated events become one event with a count.
type Recorder struct {
	cfg Config
	wg  sync.WaitGroup

	mu     sync.Mutex
	ctx    context.Context // context of Open; nil: the Recorder is not open
	seen   *seen
	tidied time.Time // when seen was last tidied
	lanes  [lanes]lane
	queue  int // events that wait, in all lanes
}

// lane is a queue of events. All events of one object are in the same lane, so that they keep their order.
type lane struct {
	queue   []recorded
	sending bool
}

func laneOf(ref *v1.ObjectReference) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, string(ref.UID)+ref.Namespace+ref.Name)
	return int(h.Sum32() >> 16 % lanes) // FNV mixes its lowest bits badly
}

// recorded holds the arguments of one call of Record or Annotated, and the time of the call.
type recorded struct {
	ref                        v1.ObjectReference
	eventType, reason, message string
	at                         time.Time
	annotations                map[string]string // annotations of the event; nobody modifies the map
	gone                       bool              // Forget was called for the object after this event
}

// New returns a Recorder that drops events until Open.
func New(cfg Config) *Recorder {
	if cfg.Rate == nil {
		cfg.Rate = rate.NewLimiter(rate.Inf, 0)
	}
	if cfg.Turn == nil {
		cfg.Turn = func(context.Context) (func(), error) { return func() {}, nil }
	}
	if cfg.Before == nil {
		cfg.Before = func(context.Context, *v1.ObjectReference, string, string) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{cfg: cfg, seen: newSeen()}
}

// Open makes the Recorder send events until ctx ends. join stops the Recorder, and waits for the requests in flight.
func (r *Recorder) Open(ctx context.Context) (join func()) {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		r.ctx = nil
		r.mu.Unlock()
		r.wg.Wait()
	}
}

// Record queues an event about an object.
func (r *Recorder) Record(ref *v1.ObjectReference, eventType, reason, message string) {
	r.Annotated(ref, nil, eventType, reason, message)
}

// Annotated queues an event with annotations, which nobody may change afterwards.
func (r *Recorder) Annotated(ref *v1.ObjectReference, annotations map[string]string, eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil || r.ctx.Err() != nil || r.queue >= waiting {
		return
	}
	l := &r.lanes[laneOf(ref)]
	l.queue = append(l.queue, recorded{ref: *ref, eventType: eventType, reason: reason, message: message, at: time.Now(), annotations: annotations})
	r.queue++
	if !l.sending {
		l.sending = true
		ctx := r.ctx
		r.wg.Go(func() { r.send(ctx, l) })
	}
}

// Forget says that an object is gone. The Recorder still sends the events of the object that wait, and then remembers them no longer: if the
// object comes back, its events are new ones.
func (r *Recorder) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.lanes {
		queue := r.lanes[i].queue
		for j := range slices.Backward(queue) { // the events of one object are all in one lane
			if queue[j].ref.UID == uid {
				queue[j].gone = true
				return
			}
		}
	}
	r.seen.forget(uid)
}

// Tidy gives back memory of events that no longer matter. The Recorder does the same when it sends an event, so Tidy is for nodes where nothing
// happens any more. It never blocks, and is cheap when it is called often.
func (r *Recorder) Tidy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tidy()
}

// tidy does the same as Tidy. The caller holds the lock.
func (r *Recorder) tidy() {
	from := time.Now()
	if from.Sub(r.tidied) < tidyEvery {
		return
	}
	r.tidied = from
	for i := range r.lanes { // an event that waits counts at the time when it occurred
		if q := r.lanes[i].queue; len(q) > 0 && q[0].at.Before(from) {
			from = q[0].at
		}
	}
	r.seen.tidy(from)
}

// send sends the events of a lane until it is empty.
func (r *Recorder) send(ctx context.Context, l *lane) {
	stack.Grow()
	for {
		t, w, ok := r.next(ctx, l)
		if !ok {
			return
		}
		if !w.spam {
			r.log(ctx, &t, &w)
			ev := r.event(&t, &w)
			if r.cfg.Keep != nil {
				r.cfg.Keep.Keep(ev)
			}
			r.cfg.Before(ctx, &t.ref, t.eventType, t.reason)
			r.one(ctx, ev, w.again)
		}
	}
}

// next takes the next event out of a lane and says how to write it. If the lane is empty, ok is false and the lane
// stops sending.
func (r *Recorder) next(ctx context.Context, l *lane) (t recorded, w written, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(l.queue) == 0 || ctx.Err() != nil {
		r.queue -= len(l.queue)
		*l = lane{}
		return recorded{}, written{}, false
	}
	t, l.queue[0] = l.queue[0], recorded{}
	l.queue = l.queue[1:]
	r.queue--
	w = r.seen.note(&t)
	if t.gone {
		r.seen.forget(t.ref.UID)
	}
	r.tidy()
	return t, w, true
}

// verbosity is the least -v with which the log shows events.
const verbosity = 2

// log writes a log line about an event. There is no line for events that are dropped because there are too many.
func (r *Recorder) log(ctx context.Context, t *recorded, w *written) {
	if !r.cfg.Log.Enabled(ctx, slog.Level(-verbosity)) {
		return
	}
	args := []any{"type", t.eventType, "reason", t.reason, "message", t.message}
	if _, name, ok := strings.Cut(t.ref.FieldPath, "{"); ok { // spec.containers{NAME}
		args = append([]any{"container", strings.TrimSuffix(name, "}")}, args...)
	}
	if t.ref.Kind == "Pod" { // the other events are about the node, whose name is in every log line
		args = append([]any{"pod", t.ref.Namespace + "/" + t.ref.Name}, args...)
	}
	if w.count > 1 {
		args = append(args, "count", w.count)
	}
	r.cfg.Log.Log(ctx, slog.Level(-verbosity), "event", args...)
}

// one sends one event, and tries again after temporary errors. If again is true, the event was created before.
func (r *Recorder) one(ctx context.Context, ev *v1.Event, again bool) {
	object := ev.InvolvedObject.Namespace + "/" + ev.InvolvedObject.Name
	for try := 1; ; try++ {
		err := r.write(ctx, ev, again)
		var refused apierrors.APIStatus
		switch {
		case err == nil, ctx.Err() != nil:
			return
		case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
			return
		case errors.As(err, &refused):
			r.cfg.Log.Warn("the API server refused an event", "reason", ev.Reason, "object", object, "err", err)
			return
		case try == tries:
			r.cfg.Log.Warn("an event is lost", "reason", ev.Reason, "object", object, "message", ev.Message, "err", err)
			return
		}
		wait := between
		if try == 1 { // a random wait, so that the agents of a cluster do not all try again at the same time
			wait = rand.N(between)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// write creates an event. If again is set, it changes the count of the event that was created before instead.
func (r *Recorder) write(ctx context.Context, ev *v1.Event, again bool) error {
	api := r.cfg.API(ev.Namespace)
	if again {
		body, err := json.Marshal(map[string]any{"count": ev.Count, "lastTimestamp": ev.LastTimestamp, "message": ev.Message})
		if err != nil {
			return fmt.Errorf("count event: %w", err)
		}
		err = r.inTurn(ctx, func() error {
			return api.Patch(ctx, ev.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		})
		if !apierrors.IsNotFound(err) {
			return err
		}
		// The API server has dropped the event, as it does after an hour by default. So create a new one.
	}
	return r.inTurn(ctx, func() error {
		return api.Create(ctx, ev, metav1.CreateOptions{})
	})
}

// inTurn sends one request when the rate and the turn allow it.
func (r *Recorder) inTurn(ctx context.Context, send func() error) error {
	if err := r.cfg.Rate.Wait(ctx); err != nil {
		return err
	}
	done, err := r.cfg.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return send()
}

func (r *Recorder) event(t *recorded, w *written) *v1.Event {
	namespace := t.ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	message := t.message
	if w.combined {
		message = "(combined from similar events): " + message
	}
	return &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: w.name, Annotations: t.annotations},
		InvolvedObject: t.ref, Type: t.eventType, Reason: t.reason, Message: message, Count: w.count,
		FirstTimestamp: metav1.NewTime(r.cfg.Clock.Shows(w.first)), LastTimestamp: metav1.NewTime(r.cfg.Clock.Shows(t.at)),
		Source: r.cfg.Source, ReportingController: r.cfg.Source.Component, ReportingInstance: r.cfg.Source.Host,
	}
}

// nameOf returns the name of an event: the name of its object and a unique number.
func nameOf(object string, n int64) string {
	number := fmt.Sprintf(".%x", n)
	if most := 253 - len(number); len(object) > most {
		object = strings.TrimRight(object[:most], "-.")
	}
	return object + number
}
