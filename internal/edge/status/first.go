package status

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// These are the waits in First, which makes the Writer send the first status of a pod soon.
const (
	firstWithin  = 50 * time.Millisecond  // wait before the status is sent, so that it can show a failure that comes at once
	firstUnknown = 100 * time.Millisecond // how long First waits for a pod whose worker has not derived a status yet
	firstWait    = time.Second            // how long First waits for the API's answer
)

// first is the state that all calls of First for one pod share.
type first struct {
	at      time.Time     // when to send the status, even if another change may follow soon
	known   chan struct{} // closed when the API has a status of the pod
	waiting int
}

// First makes the Writer send the first status of a pod soon, without waiting for further changes. It returns when the API has a status
// of the pod, or after little more than a second, because the API server may be down.
func (w *Writer) First(ctx context.Context, uid types.UID) {
	w.mu.Lock()
	e := w.pods[uid]
	if e.known() {
		w.mu.Unlock()
		return
	}
	f := w.firsts[uid]
	if f == nil {
		f = &first{at: time.Now().Add(firstWithin), known: make(chan struct{})}
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

// wait waits until the API has a status of the pod, for at most d. It reports whether the API has one.
func (f *first) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-f.known:
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

// known reports whether the API has a status that a node wrote, or needs none because the pod has left the API.
func (e *entry) known() bool {
	if e == nil || e.ended {
		return e != nil
	}
	s := &e.base.Status
	return s.StartTime != nil || len(s.ContainerStatuses) > 0 || s.Phase != "" && s.Phase != v1.PodPending
}

// tellFirst makes the calls of First for a pod return once the API has a status of the pod. The lock is held.
func (w *Writer) tellFirst(uid types.UID, e *entry) {
	if f := w.firsts[uid]; f != nil && e.known() {
		close(f.known)
		delete(w.firsts, uid)
	}
}
