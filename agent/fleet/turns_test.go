package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// While writes take long, one event is sent at a time. When they are fast again, the events that have waited are sent, the oldest first.
func TestEventsWaitWhileTheAPIServerIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		turns.wrote(2 * time.Millisecond)
		for range 100 {
			turns.wrote(50 * time.Millisecond)
		}
		for range 10 { // each event halves the number
			done, err := turns.wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done()
		}
		var mu sync.Mutex
		var order []int
		var ends []func()
		for i := range 40 {
			go func() {
				done, err := turns.wait(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order, ends = append(order, i), append(ends, done)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		if len(order) != 1 || turns.waiting() != 39 {
			t.Fatalf("%d events are sent at the same time and %d wait, want 1 and 39", len(order), turns.waiting())
		}
		ends[0]()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1}) {
			t.Fatalf("the events %v were sent, want the oldest two: 0 and 1", order)
		}
		ends = ends[1:]
		for range 200 {
			turns.wrote(2 * time.Millisecond)
		}
		for len(ends) > 0 {
			end := ends[0]
			ends = ends[1:]
			end()
			synctest.Wait()
		}
		if turns.waiting() != 0 || len(order) != 40 {
			t.Fatalf("%d events were sent and %d wait, want 40 and 0", len(order), turns.waiting())
		}
		if int(turns.window) < 6 {
			t.Errorf("after 40 fast events %v may be sent at the same time, want at least 6", turns.window)
		}
	})
}

// The events of a node whose requests hang or are slow, because of a fault, do not keep the other nodes' events from their turn.
func TestEventsOfANodeWithAFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &Fleet{count: newRequests()}
		f.count.turns.window = 1
		cut, slow, well := &node{fleet: f, link: &link{}}, &node{fleet: f, link: &link{}}, &node{fleet: f, link: &link{}}
		cut.link.partition(true)
		slow.link.slow(time.Minute)
		for _, n := range []*node{cut, slow, cut} {
			if _, err := n.eventTurn(t.Context()); err != nil { // the event is being sent, and hangs
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done, err := well.eventTurn(ctx)
		if err != nil {
			t.Fatalf("the event of another node waits: %v", err)
		}
		if f.count.turns.sending != 1 {
			t.Errorf("%d events count as being sent, want 1", f.count.turns.sending)
		}
		done()
	})
}

// An event whose node ends leaves the queue, and does not keep others from their turn.
func TestEventsOfANodeThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := &turns{window: 1}
		done, _ := turns.wait(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		var ended error
		go func() { _, ended = turns.wait(ctx) }()
		synctest.Wait()
		var next func()
		go func() { next, _ = turns.wait(t.Context()) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(ended, context.Canceled) {
			t.Errorf("the event of the node that ends got %v, want the end of its context", ended)
		}
		done()
		synctest.Wait()
		if next == nil || turns.waiting() != 0 {
			t.Fatal("the next event waits, although none is sent")
		}
		next()
		if turns.sending != 0 {
			t.Errorf("%d events count as being sent, want 0", turns.sending)
		}
	})
}
