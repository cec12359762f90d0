package fleet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// errPartition is the error of requests that a partition breaks.
var errPartition = errors.New("connection to the API server lost: the node is partitioned (injected fault)")

// partitionTimeout is how long a request hangs in a partition, like one whose packets are lost, until its connection is given up.
const partitionTimeout = 15 * time.Second

// link is the connection of one node to the API server: the shared transport, the node's identity, and partitions. Methods may be called
// concurrently.
type link struct {
	next http.RoundTripper
	// user is the name to impersonate; "": none.
	user string

	mu      sync.Mutex
	cut     chan struct{}    // closed when the partition ends; nil: there is no partition
	slows   []*time.Duration // the delays of each request
	noLease bool             // the lease is not renewed
	open    map[*cutBody]struct{}
}

var _ http.RoundTripper = (*link)(nil)

// RoundTrip sends a request.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
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
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes the body also if it fails
		}
		return nil, r.Context().Err()
	}
	if l.user != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Impersonate-User", l.user)
		r.Header["Impersonate-Group"] = []string{"system:nodes", "system:authenticated"}
	}
	if r.URL.Query().Get("watch") == "" {
		return l.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	resp, err := l.next.RoundTrip(r.WithContext(ctx))
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

// hang waits as long as a request whose packets are lost, and returns the error of such a request.
func hang(r *http.Request, healed <-chan struct{}) error {
	if r.Body != nil {
		_ = r.Body.Close() // a RoundTripper closes the body also if it fails
	}
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

// partition begins or ends a partition of the node. When it begins, watches end at once; other requests that are under way succeed.
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

// slow delays each request by d until end is called.
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

// keepLease says whether the lease of the node is renewed.
func (l *link) keepLease(keep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noLease = !keep
}

// keepsLease reports whether the lease of the node can be renewed.
func (l *link) keepsLease() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut == nil && !l.noLease
}

// partitioned reports whether the node is cut off.
func (l *link) partitioned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut != nil
}

// cutBody is the body of a watch that a partition can end.
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

// through makes requests with this context go the way of a node, if they are sent by a byNode.
func through(ctx context.Context, l *link) context.Context {
	return context.WithValue(ctx, linkKey{}, l)
}

// byNode is the transport of clients that several nodes share: the context of a request names the node.
type byNode struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (b byNode) RoundTrip(r *http.Request) (*http.Response, error) {
	if l, ok := r.Context().Value(linkKey{}).(*link); ok {
		return l.RoundTrip(r)
	}
	return b.next.RoundTrip(r)
}
