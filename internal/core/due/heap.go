package due

import (
	"container/heap"
	"time"
)

// Place is where a thing stands in a heap. What is put into one embeds it. The zero value stands nowhere.
type Place struct {
	at  time.Time
	seq uint64
	pos int // 1 is the first; 0: it stands nowhere
}

// At is the time that the thing was put for last.
func (p *Place) At() time.Time { return p.at }

// Waits reports whether the thing stands in a heap.
func (p *Place) Waits() bool { return p.pos > 0 }

func (p *Place) place() *Place { return p }

// Item is a pointer to what embeds a Place. It may stand in one heap at a time.
type Item interface{ place() *Place }

// Heap holds items by time. The zero value is empty.
type Heap[T Item] struct {
	items items[T]
	seq   uint64
}

// Len is how many items there are.
func (h *Heap[T]) Len() int { return len(h.items) }

// Put adds an item, or moves it where it is there already.
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

// Remove takes an item out, if it is there.
func (h *Heap[T]) Remove(item T) {
	if p := item.place(); p.pos > 0 {
		heap.Remove(&h.items, p.pos-1)
	}
}

// First is the item whose time comes first, which stays; ok is false where there is none.
func (h *Heap[T]) First() (item T, ok bool) {
	if len(h.items) == 0 {
		return item, false
	}
	return h.items[0], true
}

// Pop takes out the item whose time comes first. There must be one.
func (h *Heap[T]) Pop() T { return heap.Pop(&h.items).(T) }

// Hasten moves all items that which names, and whose time is later, to a time.
func (h *Heap[T]) Hasten(at time.Time, which func(T) bool) {
	for _, item := range h.items {
		if p := item.place(); p.at.After(at) && which(item) {
			p.at = at
		}
	}
	heap.Init(&h.items)
}

// items is what container/heap orders.
type items[T Item] []T

// Len is how many there are.
func (s items[T]) Len() int { return len(s) }

// Less orders by time, then by arrival.
func (s items[T]) Less(i, j int) bool {
	a, b := s[i].place(), s[j].place()
	if !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	return a.seq < b.seq
}

// Swap exchanges two.
func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place().pos, s[j].place().pos = i+1, j+1
}

// Push appends one.
func (s *items[T]) Push(x any) {
	item := x.(T)
	*s = append(*s, item)
	item.place().pos = len(*s)
}

// Pop takes the last.
func (s *items[T]) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	var none T
	(*s)[last] = none
	*s = (*s)[:last]
	item.place().pos = 0
	return item
}
