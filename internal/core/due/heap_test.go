package due_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/core/due"
)

type thing struct {
	due.Place
	n int
}

// TestHeap makes random sequences of calls and checks that the items come out by time, and items of the same time in the order in which
// they were put.
func TestHeap(t *testing.T) {
	t.Parallel()
	base := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var h due.Heap[*thing]
		things := make([]*thing, 40)
		for i := range things {
			things[i] = &thing{n: i}
		}
		var want []*thing // in the order of their Puts
		out := func(x *thing) { want = slices.DeleteFunc(want, func(y *thing) bool { return x == y }) }
		at := map[*thing]time.Time{}
		for range 400 {
			x := things[r.IntN(len(things))]
			switch r.IntN(5) {
			case 0:
				h.Remove(x)
				out(x)
			case 1:
				first, ok := h.First()
				if ok != (len(want) > 0) {
					t.Fatalf("seed %d: there is a first: %v, of %d", seed, ok, len(want))
				}
				if ok {
					if got := h.Pop(); got != first {
						t.Fatalf("seed %d: popped %d, the first was %d", seed, got.n, first.n)
					}
					out(first)
				}
			default:
				at[x] = base.Add(time.Duration(r.IntN(20)) * time.Second)
				h.Put(x, at[x])
				out(x)
				want = append(want, x)
			}
			if h.Len() != len(want) || x.Waits() != slices.Contains(want, x) {
				t.Fatalf("seed %d: %d items, want %d; %d waits: %v", seed, h.Len(), len(want), x.n, x.Waits())
			}
		}
		limit := base.Add(5 * time.Second)
		h.Hasten(limit, func(x *thing) bool { return x.n%2 == 0 })
		for _, x := range want {
			if x.n%2 == 0 && at[x].After(limit) {
				at[x] = limit
			}
		}
		slices.SortStableFunc(want, func(a, b *thing) int { return at[a].Compare(at[b]) })
		var got []*thing
		for h.Len() > 0 {
			x := h.Pop()
			if !x.At().Equal(at[x]) {
				t.Fatalf("seed %d: %d is due at %v, want %v", seed, x.n, x.At(), at[x])
			}
			got = append(got, x)
		}
		if !slices.EqualFunc(want, got, func(a, b *thing) bool { return cmp.Compare(a.n, b.n) == 0 }) {
			t.Fatalf("seed %d: not in order", seed)
		}
	}
}

// TakeDue takes the items that are due, in their order, and says when the next one is.
func TestTakeDue(t *testing.T) {
	var h due.Heap[*thing]
	now := time.Unix(0, 0)
	a, b, c := &thing{}, &thing{}, &thing{}
	h.Put(b, now)
	h.Put(c, now.Add(time.Second))
	h.Put(a, now.Add(-time.Second))
	if ready, wait, more := h.TakeDue(now); !slices.Equal(ready, []*thing{a, b}) || wait != time.Second || !more || c.At() != now.Add(time.Second) || a.Waits() {
		t.Errorf("%v, %s, %v", ready, wait, more)
	}
	if ready, wait, more := h.TakeDue(now.Add(time.Second)); !slices.Equal(ready, []*thing{c}) || wait != 0 || more {
		t.Errorf("%v, %s, %v", ready, wait, more)
	}
}
