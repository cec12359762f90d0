package due

import (
	"container/heap"
	"time"
)

// Place is the position of an item in a heap. An item embeds it. The zero value is in no heap.
type Place struct {
	at  time.Time
	seq uint64
	pos int // position in the heap, from 1; 0: the item is in no heap
}

// At returns the time of the last Put.
func (p *Place) At() time.Time { return p.at }

// Waits reports whether the item is in a heap.
func (p *Place) Waits() bool { return p.pos > 0 }

func (p *Place) place() *Place { return p }

// Item is a pointer to a type that embeds a Place. It may be in one heap at a time.
type Item interface{ place() *Place }

// Heap holds items by time. The zero value is empty.
type Heap[T Item] struct {
	items items[T]
	seq   uint64
}

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// Put adds an item, or moves it if it is in the heap already.
func (h *Heap[T]) Put(item T, at time.Time) {
	p := item.place()
	h.seq++
	p.at, p.seq = at, h.seq
	if p.pos > 0 {
		heap.Fix(&h.items, p.pos-1)
		return
	}
	heap.Push(&h.items, item)
}

// Remove removes an item, if it is in the heap.
func (h *Heap[T]) Remove(item T) {
	if p := item.place(); p.pos > 0 {
		heap.Remove(&h.items, p.pos-1)
	}
}

// First returns the item with the earliest time and leaves it in the heap; ok is false if there is none.
func (h *Heap[T]) First() (item T, ok bool) {
	if len(h.items) == 0 {
		return item, false
	}
	return h.items[0], true
}

// Pop removes and returns the item with the earliest time. The heap must not be empty.
func (h *Heap[T]) Pop() T { return heap.Pop(&h.items).(T) }

// TakeDue removes the items that are due at the time now, and returns them in their order. If items are left, more is true, and wait is the time
// from now until the next one is due.
func (h *Heap[T]) TakeDue(now time.Time) (ready []T, wait time.Duration, more bool) {
	for {
		first, ok := h.First()
		if !ok {
			return ready, 0, false
		}
		if wait := first.place().at.Sub(now); wait > 0 {
			return ready, wait, true
		}
		ready = append(ready, h.Pop())
	}
}

// Hasten moves each item for which selected returns true to the time at, unless the item's own time is earlier.
func (h *Heap[T]) Hasten(at time.Time, selected func(T) bool) {
	for _, item := range h.items {
		if p := item.place(); p.at.After(at) && selected(item) {
			p.at = at
		}
	}
	heap.Init(&h.items)
}

// items implements heap.Interface.
type items[T Item] []T

// Len returns the number of items.
func (s items[T]) Len() int { return len(s) }

// Less orders by time, then by the order of the Puts.
func (s items[T]) Less(i, j int) bool {
	a, b := s[i].place(), s[j].place()
	if !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	return a.seq < b.seq
}

// Swap exchanges two items.
func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place().pos, s[j].place().pos = i+1, j+1
}

// Push appends an item.
func (s *items[T]) Push(x any) {
	item := x.(T)
	*s = append(*s, item)
	item.place().pos = len(*s)
}

// Pop removes the last item.
func (s *items[T]) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	var none T
	(*s)[last] = none
	*s = (*s)[:last]
	item.place().pos = 0
	return item
}
