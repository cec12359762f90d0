package event

import (
	"container/list"
	"crypto/sha256"
	"io"
	"time"

	"golang.org/x/time/rate"
)

// These limits decide when events are counted, combined and dropped.
const (
	remembered = 512 // number of remembered entries of each kind
	alike      = 10  // from this many texts of one object and reason within alikeFor on, the events are combined
	alikeFor   = 10 * time.Minute
	spamBurst  = 25 // events of one object and type that may be sent at once; later only one per spamEvery
	spamEvery  = 5 * time.Minute
)

// written says whether and how the Recorder writes an event.
type written struct {
	name     string
	first    time.Time
	count    int32
	again    bool // the event was written before, so only its count changes
	combined bool // the event also stands for similar events
	spam     bool // the event is dropped, because its object has too many
}

// seen remembers recent events, so that repetitions are found: by object, reason and text, by object and reason, and by object
// and type. It has no lock of its own.
type seen struct {
	events  *recent[*sameEvent]
	reasons *recent[*sameReason]
	objects *recent[*rate.Limiter]
	last    int64 // number at the end of the newest event's name, which makes names unique
}

type sameEvent struct {
	name  string
	first time.Time
	count int32
}

// sameReason holds the different texts of the events with one object and one reason.
type sameReason struct {
	texts map[key]struct{}
	last  time.Time
}

func newSeen() *seen {
	return &seen{events: newRecent[*sameEvent](), reasons: newRecent[*sameReason](), objects: newRecent[*rate.Limiter]()}
}

// note remembers that an event has occurred, and says whether and how to write it.
func (s *seen) note(t *recorded) written {
	o := &t.ref
	object := []string{o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, t.eventType}
	reasonKey := keyOf(append(object, t.reason)...)
	eventKey := keyOf(append(object, t.reason, o.FieldPath, t.message)...)

	var w written
	reason := s.reasons.get(reasonKey, func() *sameReason { return &sameReason{} })
	if reason.texts == nil || t.at.Sub(reason.last) > alikeFor {
		reason.texts = map[key]struct{}{}
	}
	reason.last = t.at
	reason.texts[keyOf(t.message)] = struct{}{}
	if w.combined = len(reason.texts) >= alike; w.combined {
		for other := range reason.texts { // remove one text, so that the map does not grow
			delete(reason.texts, other)
			break
		}
		eventKey = reasonKey
	}

	e := s.events.get(eventKey, func() *sameEvent { return &sameEvent{first: t.at} })
	w.again = e.count > 0
	if !w.again {
		s.last = max(s.last+1, t.at.UnixNano())
		e.name = nameOf(o.Name, s.last)
	}
	e.count++
	w.name, w.first, w.count = e.name, e.first, e.count

	limit := s.objects.get(keyOf(object...), func() *rate.Limiter { return rate.NewLimiter(rate.Every(spamEvery), spamBurst) })
	w.spam = !limit.AllowN(t.at, 1)
	return w
}

// key is a digest, because texts are long and many.
type key [16]byte

func keyOf(parts ...string) (k key) {
	h := sha256.New()
	for _, p := range parts {
		_, _ = io.WriteString(h, p)
		_, _ = h.Write([]byte{0})
	}
	copy(k[:], h.Sum(nil))
	return k
}

// recent is a cache that keeps the values that were used last.
type recent[V any] struct {
	order *list.List // contains *recentEntry, the newest first
	byKey map[key]*list.Element
}

type recentEntry[V any] struct {
	key   key
	value V
}

func newRecent[V any]() *recent[V] {
	return &recent[V]{order: list.New(), byKey: map[key]*list.Element{}}
}

// get returns the value of k. If there is none, it stores the result of make.
func (r *recent[V]) get(k key, make func() V) V {
	if e, ok := r.byKey[k]; ok {
		r.order.MoveToFront(e)
		return e.Value.(*recentEntry[V]).value
	}
	if r.order.Len() >= remembered {
		oldest := r.order.Back()
		r.order.Remove(oldest)
		delete(r.byKey, oldest.Value.(*recentEntry[V]).key)
	}
	v := make()
	r.byKey[k] = r.order.PushFront(&recentEntry[V]{k, v})
	return v
}
