package event

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Kept is how many events the Local of a node without an API server keeps. The start of a pod produces five events.
	Kept = 512
	// longestWait bounds how long a request for newer events waits.
	longestWait = time.Minute
)

// Local keeps the newest events in memory and serves them. On a node without an API server it replaces the events of the server. Methods
// may be called concurrently.
type Local struct {
	most   int // how many events it keeps
	mu     sync.Mutex
	events []v1.Event // events ordered by the time of their last occurrence; their resourceVersion counts all changes
	seq    int
	news   chan struct{} // closed when the next event is stored
}

var _ API = (*Local)(nil)

// NewLocal returns a Local without events. It keeps at most so many events, at least one.
func NewLocal(most int) *Local { return &Local{most: max(1, most), news: make(chan struct{})} }

// Create stores an event. If there are too many, it drops the one that occurred longest ago.
func (l *Local) Create(_ context.Context, ev *v1.Event, _ metav1.CreateOptions) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.create(ev)
	return nil
}

// create stores an event. The lock is held.
func (l *Local) create(ev *v1.Event) {
	made := *ev
	made.CreationTimestamp = ev.LastTimestamp
	if len(l.events) >= l.most {
		l.events = slices.Delete(l.events, 0, len(l.events)-l.most+1)
	}
	l.add(&made)
}

// Keep stores an event that goes to an API server. It replaces the event of the same name, which has occurred again.
func (l *Local) Keep(ev *v1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = slices.DeleteFunc(l.events, func(e v1.Event) bool { return e.Namespace == ev.Namespace && e.Name == ev.Name })
	l.create(ev)
}

// Patch changes a stored event that has occurred again; body contains the fields that change.
func (l *Local) Patch(_ context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.events, func(e v1.Event) bool { return e.Name == name })
	if i < 0 {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
	}
	changed := l.events[i]
	if err := json.Unmarshal(body, &changed); err != nil {
		return fmt.Errorf("count event %s: %w", name, err)
	}
	l.events = slices.Delete(l.events, i, i+1)
	l.add(&changed)
	return nil
}

// add stores an event as the newest one, and wakes the requests that wait for it. The caller holds l.mu.
func (l *Local) add(ev *v1.Event) {
	l.seq++
	ev.ResourceVersion = strconv.Itoa(l.seq)
	l.events = append(l.events, *ev)
	close(l.news)
	l.news = make(chan struct{})
}

// After returns the events that are newer than seq (oldest first), the sequence number of the newest event, and a channel that is
// closed when the next event is stored.
func (l *Local) After(seq int) (events []v1.Event, newest int, news <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if n, _ := strconv.Atoi(e.ResourceVersion); n > seq {
			events = append(events, e)
		}
	}
	return events, l.seq, l.news
}

// Newest returns the newest events, oldest first. most is the largest number of events that it returns.
func (l *Local) Newest(most int) []v1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events[max(0, len(l.events)-most):])
}

// ServeHTTP answers with an EventList, oldest first. ?after= is the resourceVersion of an earlier answer; the list then has only newer
// events. With ?wait= (seconds), the request waits until there is a newer event.
func (l *Local) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var after, wait int
	for name, to := range map[string]*int{"after": &after, "wait": &wait} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		var err error
		if *to, err = strconv.Atoi(text); err != nil || *to < 0 {
			http.Error(w, fmt.Sprintf("%s: %q is not a number, 0 or more", name, text), http.StatusBadRequest)
			return
		}
	}
	events, seq, news := l.After(after)
	if after > seq { // the client got this version from an agent that ran before this one
		after = 0
		events, seq, news = l.After(after)
	}
	if len(events) == 0 && wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(min(wait, int(longestWait/time.Second)))*time.Second)
		defer cancel()
		select {
		case <-news:
			events, seq, _ = l.After(after)
		case <-ctx.Done():
		}
	}
	list := v1.EventList{
		TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(seq)}, Items: events,
	}
	if list.Items == nil {
		list.Items = []v1.Event{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // an error means that the client is gone
}
