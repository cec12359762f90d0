package fleet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errPartition is the error of requests that a partition breaks.
var errPartition = errors.New("connection to the API server lost: the node is partitioned (injected fault)")

// partitionTimeout is how long a request hangs during a partition before it fails, like a request whose packets are lost.
const partitionTimeout = 15 * time.Second

// link is the HTTP transport of one node to the API server. It adds the node's identity to the requests, and it injects the node's faults
// of the kinds FaultPartition and FaultSlowAPI. It also stores whether FaultLease is active. Its methods may be called concurrently.
type link struct {
	// next sends the requests; nil: the node has no identity yet, so nothing sends requests over the link.
	next http.RoundTripper
	// permit says until when requests may be sent; nil: always.
	permit *permit
	// user is the user name that the requests impersonate; "": none.
	user string
	// clock is the node's clock, for the times in its lease; nil: it is right.
	clock *clock

	mu      sync.Mutex
	cut     chan struct{}    // closed when the partition ends; nil: there is no partition
	slows   []*time.Duration // each request is delayed by the sum of these
	noLease bool             // the fault FaultLease: the lease is not renewed
	open    map[*cutBody]struct{}
	// asking is how many requests wait for their answer now, watches not counted. since is from when on at least one does, and waited for how
	// long at least one did before that.
	asking int
	since  time.Time
	waited time.Duration

	// owed is when the renewal of the node's lease was due first, in nanoseconds since 1970; 0: no renewal is due. The wheel writes it.
	owed atomic.Int64
}

var _ http.RoundTripper = (*link)(nil)

// RoundTrip sends a request as the node, after the injected delays. During a partition the request hangs, and then fails.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) { return l.send(r, l.next) }

// over returns a transport that sends requests with next, with the faults of the link.
func (l *link) over(next http.RoundTripper) http.RoundTripper { return detour{l, next} }

// detour is the transport that over returns.
type detour struct {
	link *link
	next http.RoundTripper
}

// RoundTrip sends a request.
func (d detour) RoundTrip(r *http.Request) (*http.Response, error) { return d.link.send(r, d.next) }

func (l *link) send(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	isWatch := r.URL.Query().Get("watch") != ""
	if !isWatch {
		l.asks()
		defer l.answered()
	}
	l.mu.Lock()
	cut, delay := l.cut, time.Duration(0)
	for _, d := range l.slows {
		delay += *d
	}
	l.mu.Unlock()
	if cut != nil {
		return nil, hang(r, cut)
	}
	if delay > 0 && !pause(r.Context(), delay) {
		closeBody(r)
		return nil, r.Context().Err()
	}
	if l.permit != nil && l.permit.over() { // checked last, because the permit may end during the delay
		closeBody(r)
		return nil, errNotHeld
	}
	if l.user != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Impersonate-User", l.user)
		r.Header["Impersonate-Group"] = []string{"system:nodes", "system:authenticated"}
	}
	if !isWatch {
		return next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	resp, err := next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	b := &cutBody{ReadCloser: resp.Body, link: l, cancel: cancel}
	resp.Body = b
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		cancel()
		return resp, nil
	}
	if l.open == nil {
		l.open = map[*cutBody]struct{}{}
	}
	l.open[b] = struct{}{}
	return resp, nil
}

// asks notes that a request waits for its answer.
func (l *link) asks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking == 0 {
		l.since = time.Now()
	}
	l.asking++
}

// answered notes that a request no longer waits for its answer.
func (l *link) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking--; l.asking == 0 {
		l.waited += time.Since(l.since)
	}
}

// waits returns for how long the node has waited for answers of the API server since its start: the time in which at least one request, watches
// not counted, had no answer.
func (l *link) waits() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking > 0 {
		return l.waited + time.Since(l.since)
	}
	return l.waited
}

// overdue returns for how long the renewal of the node's lease has been due; 0: it is not due.
func (l *link) overdue() time.Duration {
	if owed := l.owed.Load(); owed != 0 {
		return max(0, time.Since(time.Unix(0, owed)))
	}
	return 0
}

// closeBody closes the body of a request, as a RoundTripper does also if it fails.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// hang waits until the partition ends, partitionTimeout is over, or the context of the request ends. It returns an error.
func hang(r *http.Request, healed <-chan struct{}) error {
	closeBody(r)
	t := time.NewTimer(partitionTimeout)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return r.Context().Err()
	case <-healed:
	case <-t.C:
	}
	return errPartition
}

// partition begins or ends a partition of the node. When a partition begins, watches end at once; other requests in
// flight succeed.
func (l *link) partition(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case cut && l.cut == nil:
		l.cut = make(chan struct{})
		for b := range l.open {
			b.cancel()
		}
		l.open = nil
	case !cut && l.cut != nil:
		close(l.cut)
		l.cut = nil
	}
}

// slow delays each request by d, in addition to other delays, until end is called.
func (l *link) slow(d time.Duration) (end func()) {
	own := &d
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slows = append(l.slows, own)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.slows = slices.DeleteFunc(l.slows, func(other *time.Duration) bool { return other == own })
	}
}

// keepLease stores whether the lease of the node may be renewed; false: the node has the fault FaultLease.
func (l *link) keepLease(keep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noLease = !keep
}

// keepsLease reports whether no fault prevents the renewal of the node's lease: neither a partition nor FaultLease.
func (l *link) keepsLease() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut == nil && !l.noLease
}

// partitioned reports whether the node is cut off from the API server.
func (l *link) partitioned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut != nil
}

// delays reports whether a fault delays the node's requests: a partition or FaultSlowAPI.
func (l *link) delays() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut != nil || len(l.slows) > 0
}

// cutBody is the response body of a watch. A partition of the node closes it.
type cutBody struct {
	io.ReadCloser
	link   *link
	cancel context.CancelFunc
}

// Close ends the watch.
func (b *cutBody) Close() error {
	b.link.mu.Lock()
	delete(b.link.open, b)
	b.link.mu.Unlock()
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

type linkKey struct{}

// through returns a context for requests of a client with the transport byNode: the requests are sent over the link l.
func through(ctx context.Context, l *link) context.Context {
	return context.WithValue(ctx, linkKey{}, l)
}

// byNode is the transport of clients that several nodes share. It sends a request over the link in the request's context (see through).
type byNode struct{ next http.RoundTripper }

// RoundTrip sends a request over the link in its context, or over next if the context has none.
func (b byNode) RoundTrip(r *http.Request) (*http.Response, error) {
	if l, ok := r.Context().Value(linkKey{}).(*link); ok {
		return l.RoundTrip(r)
	}
	return b.next.RoundTrip(r)
}
