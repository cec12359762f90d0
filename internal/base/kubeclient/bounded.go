package kubeclient

import (
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is how much one answer may hold: client-go reads an answer whole, however long it is. A watch is no answer; what it
// says at once is bounded by client-go.
const maxAnswer = 256 << 20

// bounded is a transport whose answers end in an error where they are too long.
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

// WrappedRoundTripper is the transport below, for those who close its connections.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read fails where the answer goes on after its bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the API server's answer is longer than %d bytes", maxAnswer)
	}
	return n, err
}
