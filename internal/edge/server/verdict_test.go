package server

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/moby/spdystream/spdy"
	v1 "k8s.io/api/core/v1"
)

// opening returns what a client sends that opens these streams, with other frames between them.
func opening(t *testing.T, kinds ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	f, err := spdy.NewFramer(&b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range kinds {
		for _, frame := range []spdy.Frame{
			&spdy.PingFrame{Id: uint32(2*i + 1)},
			&spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: http.Header{v1.StreamType: {kind}}},
			&spdy.DataFrame{StreamId: spdy.StreamId(2*i + 1), Data: []byte("data")},
			&spdy.DataFrame{StreamId: spdy.StreamId(2*i + 1)},
		} {
			if err := f.WriteFrame(frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Bytes()
}

// The error stream is found wherever the client opens it, in whatever pieces its bytes come. Bytes that are no SPDY are passed by.
func TestTheErrorStreamIsFound(t *testing.T) {
	t.Parallel()
	many := make([]string, 100)
	for _, c := range []struct {
		name string
		sent []byte
		want uint32
	}{
		{"first", opening(t, "error", "stdin", "stdout"), 1},
		{"third", opening(t, "stdin", "stdout", "error", "resize"), 5},
		{"none", opening(t, "stdin", "stdout"), 0},
		{"after too many others", opening(t, append(many, "error")...), 0},
		{"a frame that is too long", append([]byte{0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff}, make([]byte, 1<<20)...), 0},
		{"no headers", []byte{0x80, 3, 0, 1, 0, 0, 0, 0, 0x80, 3, 0, 1, 0, 0, 0, 3, 1, 2, 3}, 0},
		{"no compression", append([]byte{0x80, 3, 0, 1, 0, 0, 0, 20}, make([]byte, 20)...), 0},
	} {
		for _, piece := range []int{1, 3, 7, 1 << 20} {
			v := newVerdict()
			for rest := c.sent; len(rest) > 0; {
				n := min(piece, len(rest))
				v.fromClient(rest[:n])
				rest = rest[n:]
			}
			if got := v.errors.Load(); got != c.want {
				t.Errorf("%s, in pieces of %d: %d, want %d", c.name, piece, got, c.want)
			}
			if n := v.opens.Len(); n > 2*maxSyn {
				t.Errorf("%s, in pieces of %d: %d bytes are kept", c.name, piece, n)
			}
		}
	}
}
