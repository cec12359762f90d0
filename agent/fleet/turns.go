package fleet

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	turnsMost = 32 // how many events are sent at the same time at most
	// turnSlack decides whether the API server is slow: a write takes on average longer than three times the fastest write plus turnSlack.
	turnSlack = 5 * time.Millisecond
	// turnWeight is the part that the newest write has in the average.
	turnWeight = 1.0 / 16
)

// turns says when the nodes may send events. While the API server is slow, the events of all nodes are sent one at a time, so that statuses,
// leases and the requests of other clients come first. While it is fast, more and more are sent at the same time. So no event is lost, and an
// event that waits has its own time in it, but many events may come late. Methods may be called concurrently.
type turns struct {
	mu      sync.Mutex
	window  float64         // how many events may be sent at the same time
	fastest time.Duration   // the fastest write; 0: none was answered yet
	mean    time.Duration   // moving average of how long writes take
	sending int             // events that are being sent
	queue   []chan struct{} // events that wait, the oldest first; a channel is closed when its event may be sent
}

func newTurns() *turns { return &turns{window: turnsMost / 2} }

// wait returns when an event may be sent, or when ctx ends, with an error. The caller calls done when the event has been sent.
func (t *turns) wait(ctx context.Context) (done func(), err error) {
	t.mu.Lock()
	if t.free() && len(t.queue) == 0 {
		t.sending++
		t.mu.Unlock()
		return t.done, nil
	}
	turn := make(chan struct{})
	t.queue = append(t.queue, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return t.done, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.queue, turn)
	if i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it got its turn at the same moment
		t.done()
	}
	return nil, ctx.Err()
}

// done ends the turn of one event.
func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sending--
	if t.slow() {
		t.window = max(1, t.window/2)
	} else {
		t.window = min(turnsMost, t.window+1/t.window)
	}
	for len(t.queue) > 0 && t.free() {
		t.sending++
		close(t.queue[0])
		t.queue[0] = nil
		t.queue = t.queue[1:]
	}
}

func (t *turns) free() bool { return t.sending < int(t.window) }

func (t *turns) slow() bool { return t.mean > 3*t.fastest+turnSlack }

// wrote notes how long the API server took to answer a write.
func (t *turns) wrote(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fastest == 0 {
		t.fastest, t.mean = took, took
	}
	t.fastest = min(t.fastest, took)
	t.mean += time.Duration(turnWeight * float64(took-t.mean))
}

// waiting returns how many events wait.
func (t *turns) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}
