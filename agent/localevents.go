package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// localEvents holds the newest events of a node without an API server: one of each kind and text, with its count.
// Methods may be called concurrently.
type localEvents struct {
	nodeName string

	mu     sync.Mutex
	events []v1.Event // by time of the last occurrence; resourceVersion is its place in the order of all
	seq    int
	news   chan struct{} // closed with the next event
}

func newLocalEvents(nodeName string) *localEvents {
	return &localEvents{nodeName: nodeName, news: make(chan struct{})}
}

func (l *localEvents) add(ref *v1.ObjectReference, eventType, reason, message string) {
	now := metav1.NewTime(time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	ev := v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ref.Namespace, Name: fmt.Sprintf("%s.%x", ref.Name, l.seq), CreationTimestamp: now},
		InvolvedObject: *ref, Reason: reason, Message: message, Type: eventType, FirstTimestamp: now,
		Source: v1.EventSource{Component: "kubelet", Host: l.nodeName},
	}
	kept := l.events[:0]
	for _, e := range l.events {
		if e.InvolvedObject.UID == ref.UID && e.InvolvedObject.FieldPath == ref.FieldPath && e.Reason == reason && e.Message == message && e.Type == eventType {
			ev.Name, ev.FirstTimestamp, ev.CreationTimestamp, ev.Count = e.Name, e.FirstTimestamp, e.CreationTimestamp, e.Count
			continue
		}
		kept = append(kept, e)
	}
	if len(kept) >= eventsKept {
		kept = append(kept[:0], kept[1:]...)
	}
	ev.Count++
	ev.LastTimestamp, ev.ResourceVersion = now, strconv.Itoa(l.seq)
	l.events = append(kept, ev)
	close(l.news)
	l.news = make(chan struct{})
}

// after returns the events newer than seq, the newest seq, and what is closed with the next event.
func (l *localEvents) after(seq int) ([]v1.Event, int, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []v1.Event
	for _, e := range l.events {
		if n, _ := strconv.Atoi(e.ResourceVersion); n > seq {
			out = append(out, e)
		}
	}
	return out, l.seq, l.news
}

// eventsKept is how many are kept. A pod that starts makes five.
const eventsKept = 512

// eventsWait is how long a request for newer events waits for one, at most.
const eventsWait = time.Minute

// serve answers GET /events with an EventList, oldest first. ?after= is the resourceVersion of an earlier answer: only
// newer events are given, and with ?wait= (seconds) the first one is waited for.
func (l *localEvents) serve(w http.ResponseWriter, r *http.Request) {
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
	events, seq, news := l.after(after)
	if after > seq { // of an earlier agent
		events, seq, news = l.after(0)
	}
	if len(events) == 0 && wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(wait)*time.Second, eventsWait))
		defer cancel()
		select {
		case <-news:
			events, seq, _ = l.after(after)
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
	_ = json.NewEncoder(w).Encode(list) // the client is gone: nobody to tell
}
