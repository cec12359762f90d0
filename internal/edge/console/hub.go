package console

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Source computes the documents that viewers see.
type Source interface {
	// Look computes the current documents. It calls Board.Put or Board.Keep for each of them; all other documents are removed from the
	// board. wanted names the pods whose details viewers want to see. Look is called by one goroutine at a time, only while there are
	// viewers, at most four times a second. It must return soon after ctx ends.
	Look(ctx context.Context, wanted []string, b *Board)
	// Forget drops everything that Look has kept for its next call. It is called when the last viewer leaves, never during a call of Look.
	Forget()
}

// These constants limit how often Look is called. part is the largest share of one processor that Look may use.
const (
	pace       = time.Second
	quickest   = 250 * time.Millisecond // the shortest time between two calls, when a new viewer waits for its first documents
	slowest    = 5 * time.Second
	part       = 0.01
	lookWithin = 5 * time.Second
)

// maxViewers limits the number of streams at the same time.
const maxViewers = 16

// hub shares the computed documents among all viewers. Its methods may be called concurrently. It has no goroutine and no timer.
type hub struct {
	source Source

	mu      sync.Mutex
	viewers map[*viewer]bool
	board   Board
	last    time.Time // when the last round began
	next    time.Time // when the next round is due
}

// viewer is one open stream.
type viewer struct {
	wanted string          // the pod (namespace/name) whose details the viewer sees; "": none
	seen   uint64          // the version of the board that was last sent
	sent   map[string]bool // the keys of the documents that were sent
}

func newHub(s Source) *hub { return &hub{source: s, viewers: map[*viewer]bool{}} }

// join adds a viewer. It returns nil if there are too many viewers.
func (h *hub) join(wanted string) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= maxViewers {
		return nil
	}
	if len(h.viewers) == 0 {
		h.board = Board{docs: map[string]*document{}}
	}
	v := &viewer{wanted: wanted, sent: map[string]bool{}}
	h.viewers[v] = true
	h.next = h.last.Add(quickest) // the new viewer waits less than the usual pace
	return v
}

// leave removes a viewer. When the last viewer leaves, it drops all documents, and the source drops what it has kept.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.viewers, v); len(h.viewers) == 0 {
		h.board = Board{}
		h.source.Forget()
	}
}

// refresh computes the documents again if the next computation is due. It returns the changes that the viewer has not seen, and how long
// the viewer should wait until its next call.
func (h *hub) refresh(ctx context.Context, v *viewer) (messages [][]byte, rest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); !now.Before(h.next) {
		h.round(ctx, now)
	}
	return v.news(&h.board, time.Now()), max(quickest, time.Until(h.next))
}

// round computes all documents. The caller holds h.mu.
func (h *hub) round(ctx context.Context, now time.Time) {
	wanted := map[string]bool{}
	for v := range h.viewers {
		if v.wanted != "" {
			wanted[v.wanted] = true
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin) // all viewers use the result, so the end of this viewer's request must not cancel the call
	defer cancel()
	h.board.round++
	h.source.Look(ctx, slices.Sorted(maps.Keys(wanted)), &h.board)
	h.board.sweep()
	took := time.Since(now)
	h.last = now
	h.next = now.Add(min(slowest, max(pace, time.Duration(float64(took)/part))))
}
