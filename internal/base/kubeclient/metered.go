package kubeclient

import (
	"context"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Meter counts the requests of a client. Method is the HTTP method, host the server with its port. Calls may be concurrent and
// must not block.
type Meter interface {
	// Answered is called once for each request, with the HTTP status of its answer, or 0 if there was no answer.
	Answered(method, host string, status int)
	// Repeated is called for each answer after which client-go sends the request again later.
	Repeated(method, host string, status int)
	// Read is called when the client closes the answer. took is the time since the request was sent. sent and received are the lengths in
	// bytes of the request's body and of the answer's body; sent is -1 if it is not known. Read is not called for watches.
	Read(method, host string, took time.Duration, sent, received int64)
	// Limited is called with the time that a request waited for the client's rate limiter.
	Limited(method, host string, waited time.Duration)
}

// metered is a transport that counts its requests.
type metered struct {
	next  http.RoundTripper
	meter Meter
	host  string // the configured host, because a server may redirect requests to any number of others
}

// RoundTrip sends a request.
func (m metered) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := m.next.RoundTrip(r)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	m.meter.Answered(r.Method, m.host, status)
	if err != nil {
		return resp, err
	}
	if resp.Header.Get("Retry-After") != "" && (status == http.StatusTooManyRequests || status >= http.StatusInternalServerError) {
		m.meter.Repeated(r.Method, m.host, status)
	}
	if r.URL.Query().Get("watch") == "" {
		resp.Body = &meteredBody{ReadCloser: resp.Body, closed: func(received int64) {
			m.meter.Read(r.Method, m.host, time.Since(began), r.ContentLength, received)
		}}
	}
	return resp, nil
}

// WrappedRoundTripper returns the transport below, for callers that close its connections.
func (m metered) WrappedRoundTripper() http.RoundTripper { return m.next }

// meteredBody counts the bytes of an answer. One goroutine uses it.
type meteredBody struct {
	io.ReadCloser
	received int64
	closed   func(received int64) // called by Close with the number of bytes; nil after Close
}

// Read reads from the answer.
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	return n, err
}

// Close ends the answer.
func (b *meteredBody) Close() error {
	if b.closed != nil {
		b.closed(b.received)
		b.closed = nil
	}
	return b.ReadCloser.Close()
}

// limited reports to a Meter how long the requests of one HTTP method wait for a rate limiter.
type limited struct {
	flowcontrol.RateLimiter
	meter        Meter
	method, host string
}

// Wait waits until the limiter allows a request.
func (l limited) Wait(ctx context.Context) error {
	began := time.Now()
	err := l.RateLimiter.Wait(ctx)
	l.meter.Limited(l.method, l.host, time.Since(began))
	return err
}

// meteredClient is a rest.Interface whose requests wait for a metered rate limiter.
type meteredClient struct {
	rest.Interface
	limiter flowcontrol.RateLimiter
	meter   Meter
	host    string
}

func newMeteredClient(c rest.Interface, meter Meter, host string) rest.Interface {
	limiter := c.GetRateLimiter()
	if limiter == nil {
		return c
	}
	return &meteredClient{c, limiter, meter, host}
}

func (c *meteredClient) limited(r *rest.Request, method string) *rest.Request {
	return r.Throttle(limited{c.limiter, c.meter, method, c.host})
}

// Get begins a GET request.
func (c *meteredClient) Get() *rest.Request { return c.limited(c.Interface.Get(), http.MethodGet) }

// Post begins a POST request.
func (c *meteredClient) Post() *rest.Request { return c.limited(c.Interface.Post(), http.MethodPost) }

// Put begins a PUT request.
func (c *meteredClient) Put() *rest.Request { return c.limited(c.Interface.Put(), http.MethodPut) }

// Patch begins a PATCH request.
func (c *meteredClient) Patch(kind types.PatchType) *rest.Request {
	return c.limited(c.Interface.Patch(kind), http.MethodPatch)
}

// Delete begins a DELETE request.
func (c *meteredClient) Delete() *rest.Request {
	return c.limited(c.Interface.Delete(), http.MethodDelete)
}
