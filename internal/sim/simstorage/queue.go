package simstorage

import (
	"context"
	"sync"
	"time"
)

// queue calls a function for keys: for one key at a time only once, for at most atOnce keys at the same time, and after each add of a key at
// least once more. At rest it has no goroutine.
type queue struct {
	work func(context.Context, key)

	mu      sync.Mutex
	ctx     context.Context // nil: not open yet
	ready   []key           // in the order in which they were added
	waits   map[key]bool    // the keys of ready
	runs    map[key]bool    // true: the key was added again meanwhile
	workers int
	group   sync.WaitGroup
}

// open lets the queue work until ctx ends.
func (q *queue) open(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ctx, q.waits, q.runs = ctx, map[key]bool{}, map[key]bool{}
}

// wait waits, after the end of the context, until no call runs.
func (q *queue) wait() {
	q.mu.Lock()
	q.ctx = nil // nothing begins any more
	q.mu.Unlock()
	q.group.Wait()
}

// add makes the queue call the function for a key.
func (q *queue) add(k key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx == nil || q.ctx.Err() != nil || q.waits[k] {
		return
	}
	if _, running := q.runs[k]; running {
		q.runs[k] = true
		return
	}
	q.push(k)
}

// push adds a key that does not wait. The caller holds the lock.
func (q *queue) push(k key) {
	q.ready, q.waits[k] = append(q.ready, k), true
	if q.workers < atOnce {
		q.workers++
		q.group.Go(func() { q.drain(q.ctx) })
	}
}

// addLater adds a key after a time.
func (q *queue) addLater(k key, after time.Duration) { time.AfterFunc(after, func() { q.add(k) }) }

// drain works until no key waits.
func (q *queue) drain(ctx context.Context) {
	for {
		q.mu.Lock()
		if len(q.ready) == 0 || ctx.Err() != nil {
			q.workers--
			q.mu.Unlock()
			return
		}
		k := q.ready[0]
		q.ready = q.ready[1:]
		delete(q.waits, k)
		q.runs[k] = false
		q.mu.Unlock()
		q.work(ctx, k)
		q.mu.Lock()
		again := q.runs[k]
		delete(q.runs, k)
		if again && ctx.Err() == nil {
			q.push(k)
		}
		q.mu.Unlock()
	}
}
