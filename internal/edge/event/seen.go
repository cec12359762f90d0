package event

import (
	"crypto/sha256"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// These limits decide when events are counted, combined and dropped.
const (
	remembered = 512            // the largest number of entries in each of the three caches of seen
	countedFor = 24 * time.Hour // an event that has not occurred for longer is a new one
	alike      = 10             // from this number of different texts on, events with the same object and reason are combined
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
// reason, and one by object and type. Entries go when their object is gone (forget), when they no longer matter (tidy), and when the
// cache is full. It has no lock of its own.
type seen struct {
	events  recent[sameEvent]
	reasons recent[sameReason]
	objects recent[allowance]
	last    int64 // number at the end of the newest event's name, which makes names unique
}

// sameEvent is an event that was sent.
type sameEvent struct {
	number int64 // the number at the end of its name
	first  int64 // when it first occurred, in nanoseconds since the epoch
	count  int32
	last   uint32 // when it last occurred, in seconds since the epoch; an int64 would make the entry larger
}

// over reports whether an event that occurs at this time, in nanoseconds since the epoch, is a new one.
func (e *sameEvent) over(at int64) bool {
	return at/int64(time.Second)-int64(e.last) > int64(countedFor/time.Second)
}

// sameReason holds the different texts of the events with one object and one reason.
type sameReason struct {
	texts []key // digests of the texts; at most alike of them
	last  int64 // when the last event came, in nanoseconds since the epoch
}

// over reports whether the texts no longer count for an event at this time, in nanoseconds since the epoch.
func (r *sameReason) over(at int64) bool { return at-r.last > int64(alikeFor) }

// allowance is how many events of one object and type may still be sent. It grows by one each spamEvery, up to spamBurst.
type allowance struct {
	left float64
	at   int64 // when left was computed, in nanoseconds since the epoch
}

// take reports whether one more event may be sent. If so, it takes that event off the allowance.
func (a *allowance) take(now time.Time) bool {
	a.left, a.at = a.then(now.UnixNano()), now.UnixNano()
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

// then returns the allowance at a time, in nanoseconds since the epoch. The zero allowance is full.
func (a *allowance) then(at int64) float64 {
	if a.at == 0 {
		return spamBurst
	}
	return min(spamBurst, a.left+float64(max(0, at-a.at))/float64(spamEvery))
}

func newSeen() *seen { return &seen{} }

// note remembers that an event has occurred, and says whether and how to write it.
func (s *seen) note(t *recorded) written {
	o := &t.ref
	object := []string{o.Kind, o.Namespace, o.Name, o.APIVersion, t.eventType}
	reasonKey := keyOf(o.UID, append(object, t.reason)...)
	eventKey := keyOf(o.UID, append(object, t.reason, o.FieldPath, t.message)...)

	var w written
	reason := s.reasons.get(reasonKey)
	if reason.over(t.at.UnixNano()) {
		reason.texts = nil
	}
	reason.last = t.at.UnixNano()
	if text := digest(t.message); !slices.Contains(reason.texts, text) {
		reason.texts = append(reason.texts, text)
	}
	if w.combined = len(reason.texts) >= alike; w.combined {
		reason.texts = slices.Delete(reason.texts, 0, 1) // limit the length of the list
		eventKey = reasonKey
	}

	e := s.events.get(eventKey)
	w.again = e.count > 0 && !e.over(t.at.UnixNano())
	if !w.again {
		s.last = max(s.last+1, t.at.UnixNano())
		*e = sameEvent{number: s.last, first: t.at.UnixNano()}
	}
	e.count++
	e.last = uint32(t.at.Unix())
	w.name, w.first, w.count = nameOf(o.Name, e.number), time.Unix(0, e.first), e.count

	w.spam = !s.objects.get(keyOf(o.UID, object...)).take(t.at)
	return w
}

// forget drops the events of an object that is gone. Its allowance stays until it is full: a static pod may come back with the same UID.
func (s *seen) forget(uid types.UID) {
	gone := keyOf(uid)
	s.events.drop(func(k key, _ sameEvent) bool { return k.sameObject(gone) })
	s.reasons.drop(func(k key, _ sameReason) bool { return k.sameObject(gone) })
}

// tidy drops the entries that make no difference to any event at this time or later.
func (s *seen) tidy(from time.Time) {
	at := from.UnixNano()
	s.events.drop(func(_ key, e sameEvent) bool { return e.over(at) })
	s.reasons.drop(func(_ key, r sameReason) bool { return r.over(at) })
	s.objects.drop(func(_ key, a allowance) bool { return a.then(at) == spamBurst })
}

// key is a key of a cache. It contains digests, because the texts that identify an entry are long and many: the first half is one of the
// object's UID, the second half one of the other texts.
type key [16]byte

func keyOf(uid types.UID, parts ...string) (k key) {
	object, rest := digest(string(uid)), digest(parts...)
	copy(k[:8], object[:])
	copy(k[8:], rest[:])
	return k
}

// sameObject reports whether two keys are of the same object.
func (k key) sameObject(other key) bool { return [8]byte(k[:8]) == [8]byte(other[:8]) }

// digest returns a digest of texts.
func digest(parts ...string) (k key) {
	all := make([]byte, 0, 512) // on the stack; most texts fit
	for _, p := range parts {
		all = append(append(all, p...), 0)
	}
	sum := sha256.Sum256(all)
	copy(k[:], sum[:])
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

// drop removes the entries for which unneeded returns true. If less than half of the memory is in use then, it gives the rest back.
func (r *recent[V]) drop(unneeded func(k key, value V) bool) {
	r.entries = slices.DeleteFunc(r.entries, func(e recentEntry[V]) bool { return unneeded(e.key, e.value) })
	switch n := len(r.entries); {
	case n == 0:
		r.entries = nil
	case n < cap(r.entries)/2:
		r.entries = append(make([]recentEntry[V], 0, n), r.entries...)
	}
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
