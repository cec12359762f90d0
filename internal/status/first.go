package status

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The timings of a first status that somebody waits for.
const (
	firstWithin  = 50 * time.Millisecond  // how soon it is sent; what has just failed is in it by then
	firstUnknown = 100 * time.Millisecond // how long a pod is waited for that the Writer does not know: its first turn may be about to end
	firstWait    = time.Second            // how long the API's answer is waited for
)

// first is a pod whose first status somebody waits for.
type first struct {
	at      time.Time     // when it is to be sent, whatever news may follow
	told    chan struct{} // closed when the API has it
	waiting int
}

// First has the first status of a pod sent soon, instead of with the news that may follow it, and returns when the API has
// it; at once where it has one. It waits little more than a second at most: the API server may be away.
func (w *Writer) First(ctx context.Context, uid types.UID) {
	w.mu.Lock()
	e := w.pods[uid]
	if e.known() {
		w.mu.Unlock()
		return
	}
	f := w.firsts[uid]
	if f == nil {
		f = &first{at: time.Now().Add(firstWithin), told: make(chan struct{})}
		w.firsts[uid] = f
	}
	f.waiting++
	if e != nil {
		w.schedule(e, time.Now())
	}
	w.mu.Unlock()

	if !f.wait(ctx, firstUnknown) && w.has(uid) {
		f.wait(ctx, firstWait)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.waiting--; f.waiting == 0 && w.firsts[uid] == f {
		delete(w.firsts, uid)
	}
}

// wait reports whether the API has the status within d.
func (f *first) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-f.told:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (w *Writer) has(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[uid] != nil
}

// known reports whether the API has a status that a node wrote, or has no use for one.
func (e *entry) known() bool {
	if e == nil || e.ended {
		return e != nil
	}
	s := &e.base.Status
	return s.StartTime != nil || len(s.ContainerStatuses) > 0 || s.Phase != "" && s.Phase != v1.PodPending
}

// tellFirst ends the wait for the first status of a pod once the API has it. Called with the lock held.
func (w *Writer) tellFirst(uid types.UID, e *entry) {
	if f := w.firsts[uid]; f != nil && e.known() {
		close(f.told)
		delete(w.firsts, uid)
	}
}
