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
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How hard it is tried to send an event, how many may wait, and how many requests there may be at a time.
const (
	tries   = 12
	between = 10 * time.Second
	waiting = 1000
	lanes   = 4
)

// API are the events of one namespace. Calls may come concurrently.
type API interface {
	Create(ctx context.Context, ev *v1.Event, opts metav1.CreateOptions) (*v1.Event, error)
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Event, error)
}

// Config is what a Recorder works with.
type Config struct {
	API func(namespace string) API
	// Source is whom the events are from.
	Source v1.EventSource
	// Before, when set, is called before an event is sent, and returns soon: others of its lane wait meanwhile.
	Before func(ctx context.Context, ref *v1.ObjectReference, eventType, reason string)
	// Rate bounds the requests; nil: no bound.
	Rate *rate.Limiter
	// Log gets a line for each event that is sent, at -v=2, and a warning for each that the API server refuses and that is lost.
	// Nil: nothing does.
	Log *slog.Logger
}

// Recorder sends events.
type Recorder struct {
	cfg Config
	wg  sync.WaitGroup

	mu    sync.Mutex
	ctx   context.Context // nil unless it is open
	seen  *seen
	lanes [lanes]lane
	queue int // how many wait, in all lanes
}

// lane is the events of some objects: each object has one, so that its events stay in their order.
type lane struct {
	queue   []told
	sending bool
}

func laneOf(ref *v1.ObjectReference) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, string(ref.UID)+ref.Namespace+ref.Name)
	return int(h.Sum32() >> 16 % lanes) // FNV mixes its lowest bits little
}

// told is one event as it was recorded.
type told struct {
	ref                        v1.ObjectReference
	eventType, reason, message string
	at                         time.Time
}

// New returns a Recorder that drops events until Open.
func New(cfg Config) *Recorder {
	if cfg.Rate == nil {
		cfg.Rate = rate.NewLimiter(rate.Inf, 0)
	}
	if cfg.Before == nil {
		cfg.Before = func(context.Context, *v1.ObjectReference, string, string) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{cfg: cfg, seen: newSeen()}
}

// Open lets events be sent until ctx ends. The function that it returns waits for the requests under way.
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

// Record takes an event on an object.
func (r *Recorder) Record(ref *v1.ObjectReference, eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil || r.ctx.Err() != nil || r.queue >= waiting {
		return
	}
	l := &r.lanes[laneOf(ref)]
	l.queue = append(l.queue, told{*ref, eventType, reason, message, time.Now()})
	r.queue++
	if !l.sending {
		l.sending = true
		ctx := r.ctx
		r.wg.Go(func() { r.send(ctx, l) })
	}
}

// send empties a lane.
func (r *Recorder) send(ctx context.Context, l *lane) {
	for {
		t, w, ok := r.next(ctx, l)
		if !ok {
			return
		}
		if !w.spam {
			r.log(ctx, &t, &w)
			r.cfg.Before(ctx, &t.ref, t.eventType, t.reason)
			r.one(ctx, &t, &w)
		}
	}
}

// next takes the next event out of a lane and says how to write it; of a lane that is empty, it ends the sending.
func (r *Recorder) next(ctx context.Context, l *lane) (t told, w written, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(l.queue) == 0 || ctx.Err() != nil {
		r.queue -= len(l.queue)
		*l = lane{}
		return told{}, written{}, false
	}
	t, l.queue[0] = l.queue[0], told{}
	l.queue = l.queue[1:]
	r.queue--
	return t, r.seen.note(&t), true
}

// verbosity is the -v from which the log has events.
const verbosity = 2

// log writes the line of an event. It is not written for events that are too many to be sent.
func (r *Recorder) log(ctx context.Context, t *told, w *written) {
	args := []any{"type", t.eventType, "reason", t.reason, "message", t.message}
	if t.ref.Kind == "Pod" { // else it is of the node, which every line names
		args = append([]any{"pod", t.ref.Namespace + "/" + t.ref.Name}, args...)
	}
	if w.count > 1 {
		args = append(args, "count", w.count)
	}
	r.cfg.Log.Log(ctx, slog.Level(-verbosity), "event", args...)
}

// one sends one event, as often as it takes.
func (r *Recorder) one(ctx context.Context, t *told, w *written) {
	ev := r.event(t, w)
	for try := 1; ; try++ {
		err := r.write(ctx, ev, w.again)
		var refused apierrors.APIStatus
		switch {
		case err == nil, ctx.Err() != nil:
			return
		case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
			return
		case errors.As(err, &refused):
			r.cfg.Log.Warn("the API server refused an event", "reason", t.reason, "object", t.ref.Namespace+"/"+t.ref.Name, "err", err)
			return
		case try == tries:
			r.cfg.Log.Warn("an event is lost", "reason", t.reason, "object", t.ref.Namespace+"/"+t.ref.Name, "message", t.message, "err", err)
			return
		}
		wait := between
		if try == 1 { // the agents of a cluster should not all come back at once
			wait = rand.N(between)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// write makes the event, or counts it where it is there.
func (r *Recorder) write(ctx context.Context, ev *v1.Event, again bool) error {
	api := r.cfg.API(ev.Namespace)
	if again {
		body, err := json.Marshal(map[string]any{"count": ev.Count, "lastTimestamp": ev.LastTimestamp, "message": ev.Message})
		if err != nil {
			return fmt.Errorf("count event: %w", err)
		}
		if err := r.cfg.Rate.Wait(ctx); err != nil {
			return err
		}
		_, err = api.Patch(ctx, ev.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		// It was kept for an hour.
	}
	if err := r.cfg.Rate.Wait(ctx); err != nil {
		return err
	}
	_, err := api.Create(ctx, ev, metav1.CreateOptions{})
	return err
}

func (r *Recorder) event(t *told, w *written) *v1.Event {
	namespace := t.ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	message := t.message
	if w.combined {
		message = "(combined from similar events): " + message
	}
	return &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: w.name},
		InvolvedObject: t.ref, Type: t.eventType, Reason: t.reason, Message: message, Count: w.count,
		FirstTimestamp: metav1.NewTime(w.first), LastTimestamp: metav1.NewTime(t.at),
		Source: r.cfg.Source, ReportingController: r.cfg.Source.Component, ReportingInstance: r.cfg.Source.Host,
	}
}

// nameOf makes the name of an event: that of its object and a number that no other has.
func nameOf(object string, n int64) string {
	number := fmt.Sprintf(".%x", n)
	if most := 253 - len(number); len(object) > most {
		object = strings.TrimRight(object[:most], "-.")
	}
	return object + number
}
