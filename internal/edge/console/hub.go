package console

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Source computes what viewers see.
type Source interface {
	// Look puts every document that exists on the board, or keeps it; a document that it neither puts nor keeps disappears.
	// wanted names what viewers look at in detail. Look is called by one goroutine at a time, only while somebody looks, at most
	// four times a second. It must return soon after ctx ends.
	Look(ctx context.Context, wanted []string, b *Board)
}

// The pace of Look: part is the greatest part of one processor that computing may take while somebody looks.
const (
	pace       = time.Second
	quickest   = 250 * time.Millisecond // for a viewer that has just come
	slowest    = 5 * time.Second
	part       = 0.01
	lookWithin = 5 * time.Second
)

// maxViewers bounds the streams.
const maxViewers = 16

// hub lets viewers share what is computed for them. Its methods may be called concurrently. It has no goroutine and no timer.
type hub struct {
	source Source

	mu      sync.Mutex
	viewers map[*viewer]bool
	board   Board
	last    time.Time // when the last round began
	next    time.Time // when the next round is due
}

// viewer is one stream.
type viewer struct {
	wanted string          // what it looks at in detail; "": nothing
	seen   uint64          // the version of the board that it has
	sent   map[string]bool // the keys that it has
}

func newHub(s Source) *hub { return &hub{source: s, viewers: map[*viewer]bool{}} }

// join adds a viewer; nil: there are too many.
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
	h.next = h.last.Add(quickest) // the new viewer need not wait for a whole pace
	return v
}

// leave removes a viewer. With the last one everything that was computed is dropped.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.viewers, v); len(h.viewers) == 0 {
		h.board = Board{}
	}
}

// refresh begins a round if one is due, and returns the changes that the viewer has not seen, and how long it may rest.
func (h *hub) refresh(ctx context.Context, v *viewer) (messages [][]byte, rest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); !now.Before(h.next) {
		h.round(ctx, now)
	}
	return v.news(&h.board, time.Now()), max(quickest, time.Until(h.next))
}

// round computes all documents. The lock is held.
func (h *hub) round(ctx context.Context, now time.Time) {
	wanted := map[string]bool{}
	for v := range h.viewers {
		if v.wanted != "" {
			wanted[v.wanted] = true
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin) // other viewers need the result too
	defer cancel()
	h.board.round++
	h.source.Look(ctx, slices.Sorted(maps.Keys(wanted)), &h.board)
	h.board.sweep()
	took := time.Since(now)
	h.last = now
	h.next = now.Add(min(slowest, max(pace, time.Duration(float64(took)/part))))
}
