package timeline

import (
	"fmt"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// These constants bound the size of a Ring: it holds at most maxRecords records, and each text of a record has at most maxText bytes.
const (
	maxRecords = 48
	maxText    = 256
)

// Record is one event in a pod's life.
type Record struct {
	At     time.Time     `json:"at"`
	Kind   Kind          `json:"kind"`
	Band   Band          `json:"band,omitzero"`   // what the pod does from this decision on; BandNone if the record is not a decision
	Cause  string        `json:"cause,omitempty"` // why the worker took a turn
	What   string        `json:"what"`            // the phase of the pod, or the action with its container
	Why    string        `json:"why,omitempty"`
	Waited time.Duration `json:"waited,omitempty"` // how long the action waited in a queue before it began
	Took   time.Duration `json:"took,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// Kind says whether a record is a decision, the start of an action or the end of one.
type Kind uint8

// The kinds of records.
const (
	KindDecision Kind = iota + 1
	KindBegan
	KindEnded
)

var kindNames = [...]string{"", "decision", "began", "ended"}

// String returns the word for a kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", k)
}

// MarshalText returns the name of the kind, as String does.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name of a kind. An unknown name, for example from a newer agent, becomes the zero value.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = Kind(max(0, slices.Index(kindNames[:], string(text)))) //nolint:gosec // an index of four words
	return nil
}

// Ring is one pod's timeline. The zero value is ready; it takes memory only as it fills. The pods of one workload do the same things for
// the same reasons, so rings share what their records say (kept), and only the times belong to one ring.
type Ring struct {
	mu      sync.Mutex
	records []kept
	dropped int // number of dropped records; the oldest one left is at dropped % maxRecords
}

// kept is the compact form of a Record: 24 bytes of its own.
type kept struct {
	at   int64 // nanoseconds of Unix time; 0: the record has no time
	took time.Duration
	rest unique.Handle[Record] // the record without at and took
}

func keep(rec Record) kept {
	k := kept{took: rec.Took}
	if !rec.At.IsZero() {
		k.at = rec.At.UnixNano()
	}
	rec.At, rec.Took = time.Time{}, 0
	k.rest = unique.Make(rec)
	return k
}

func (k kept) record() Record {
	rec := k.rest.Value()
	if rec.Took = k.took; k.at != 0 {
		rec.At = time.Unix(0, k.at)
	}
	return rec
}

// Add appends a record. If the ring is full, it drops the oldest.
func (r *Ring) Add(rec Record) {
	rec.Cause, rec.What = clip(rec.Cause), clip(rec.What)
	rec.Why, rec.Error = clip(rec.Why), clip(rec.Error)
	k := keep(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) < maxRecords {
		r.records = append(r.records, k)
		return
	}
	r.records[r.dropped%maxRecords] = k
	r.dropped++
}

// Added returns how many records were ever added. A caller that remembers the number knows whether there are new records.
func (r *Ring) Added() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records) + r.dropped
}

// Records returns the records, oldest first, and how many older ones were dropped. Their times have no monotonic clock reading.
func (r *Ring) Records() ([]Record, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Record, len(r.records))
	for i := range out {
		out[i] = r.records[(r.dropped+i)%maxRecords].record()
	}
	return out, r.dropped
}

// clip bounds a text and removes control characters, because a container's text must not control the terminal of a
// reader.
func clip(s string) string { return pod.TextMax(s, maxText) }
