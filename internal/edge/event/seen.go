package event

import (
	"crypto/sha256"
	"io"
	"slices"
	"time"
)

// These limits decide when events are counted, combined and dropped.
const (
	remembered = 512 // number of entries in each of the three caches of seen
	alike      = 10  // from this number of different texts on, events with the same object and reason are combined
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

// seen remembers recent events, so that it recognizes repeated ones. It has one cache by object, reason and text, one by object and
// reason, and one by object and type. It has no lock of its own.
type seen struct {
	events  recent[sameEvent]
	reasons recent[sameReason]
	objects recent[allowance]
	last    int64 // number at the end of the newest event's name, which makes names unique
}

// sameEvent is an event that was sent. Its times are in nanoseconds since the epoch.
type sameEvent struct {
	number int64 // the number at the end of its name
	first  int64
	count  int32
}

// sameReason holds the different texts of the events with one object and one reason.
type sameReason struct {
	texts []key // digests of the texts; at most alike of them
	last  int64 // when the last event came, in nanoseconds since the epoch
}

// allowance is how many events of one object and type may still be sent. It grows by one each spamEvery, up to spamBurst.
type allowance struct {
	left float64
	at   int64 // when left was computed, in nanoseconds since the epoch
}

// take reports whether one more event may be sent. If so, it takes that event off the allowance.
func (a *allowance) take(now time.Time) bool {
	if a.at == 0 {
		a.left = spamBurst
	} else if passed := now.UnixNano() - a.at; passed > 0 {
		a.left = min(spamBurst, a.left+float64(passed)/float64(spamEvery))
	}
	a.at = now.UnixNano()
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

func newSeen() *seen { return &seen{} }

// note remembers that an event has occurred, and says whether and how to write it.
func (s *seen) note(t *recorded) written {
	o := &t.ref
	object := []string{o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, t.eventType}
	reasonKey := keyOf(append(object, t.reason)...)
	eventKey := keyOf(append(object, t.reason, o.FieldPath, t.message)...)

	var w written
	reason := s.reasons.get(reasonKey)
	if t.at.UnixNano()-reason.last > int64(alikeFor) {
		reason.texts = nil
	}
	reason.last = t.at.UnixNano()
	if text := keyOf(t.message); !slices.Contains(reason.texts, text) {
		reason.texts = append(reason.texts, text)
	}
	if w.combined = len(reason.texts) >= alike; w.combined {
		reason.texts = slices.Delete(reason.texts, 0, 1) // limit the length of the list
		eventKey = reasonKey
	}

	e := s.events.get(eventKey)
	w.again = e.count > 0
	if !w.again {
		s.last = max(s.last+1, t.at.UnixNano())
		e.number, e.first = s.last, t.at.UnixNano()
	}
	e.count++
	w.name, w.first, w.count = nameOf(o.Name, e.number), time.Unix(0, e.first), e.count

	w.spam = !s.objects.get(keyOf(object...)).take(t.at)
	return w
}

// key is a key of a cache: a digest of the texts that identify an entry, because these texts are long and many.
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

// recent is a cache of bounded size that keeps the most recently used values. It searches all entries for a key: they are few, an event causes
// a request anyway, and a map would need twice the memory.
type recent[V any] struct {
	entries []recentEntry[V]
	uses    uint32 // counts the calls of get
}

type recentEntry[V any] struct {
	key   key
	value V
	used  uint32 // the value of uses when the entry was last used
}

// get returns the value of k, which is valid until the next call. If there is none, it adds the zero value. If the cache is full, the least
// recently used value goes.
func (r *recent[V]) get(k key) *V {
	r.uses++
	at := slices.IndexFunc(r.entries, func(e recentEntry[V]) bool { return e.key == k })
	if at < 0 {
		at = r.free()
		r.entries[at] = recentEntry[V]{key: k}
	}
	r.entries[at].used = r.uses
	return &r.entries[at].value
}

// free returns the index of an entry for a new key.
func (r *recent[V]) free() int {
	n := len(r.entries)
	if n == remembered {
		return r.oldest()
	}
	if n == cap(r.entries) { // append would often leave half of the memory unused
		r.entries = append(make([]recentEntry[V], 0, n+n/4+1), r.entries...)
	}
	r.entries = r.entries[:n+1]
	return n
}

func (r *recent[V]) oldest() (at int) {
	most := uint32(0)
	for i := range r.entries {
		if age := r.uses - r.entries[i].used; age >= most { // the difference is right also after uses has overflowed
			at, most = i, age
		}
	}
	return at
}
