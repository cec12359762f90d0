package kubeclient

import (
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds one answer, because client-go reads an answer into memory as a whole, however long it is. It does
// not apply to a watch; client-go bounds each event of a watch.
const maxAnswer = 256 << 20

// bounded is a transport whose answers fail if they are too long.
type bounded struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil || r.URL.Query().Get("watch") != "" {
		return resp, err
	}
	resp.Body = &boundedBody{resp.Body, maxAnswer}
	return resp, nil
}

// WrappedRoundTripper returns the transport below, for callers that close its connections.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read fails if the answer is longer than the bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the API server's answer is longer than %d bytes", maxAnswer)
	}
	return n, err
}
