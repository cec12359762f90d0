package server

import (
	"bytes"
	"encoding/base64"
	"io"
	"net"
	"strings"
	"testing"
)

// record is a client that keeps what it gets.
type record struct {
	net.Conn
	bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) { return r.Buffer.Write(b) }
func (r *record) Read(b []byte) (int, error)  { return r.Buffer.Read(b) }

// The client of a WebSocket gets a result after whatever the runtime has sent, in whatever pieces it came, unless the runtime has sent one or has closed
// the stream. A frame or a message that has begun is ended before.
func TestTheResultFollowsTheRuntimesFrames(t *testing.T) {
	t.Parallel()
	long := "\x82\x7e\x01\x00\x01" + strings.Repeat("x", 255)
	for _, c := range []struct {
		name, sent string
		base64     bool
		before     string // what the client gets between sent and the result
		none       bool   // the client gets no result
	}{
		{name: "nothing"},
		{name: "output", sent: "\x82\x03\x01hi" + long},
		{name: "an empty message in the error channel", sent: "\x82\x01\x03"},
		{name: "a ping", sent: "\x89\x02\x03\x03"},
		{name: "the middle of output", sent: "\x82\x04\x01h", before: "\x00\x00"},
		{name: "the middle of a message of several frames", sent: "\x02\x02\x01h\x00\x01i\x89\x00", before: "\x80\x00"},
		{name: "a result", sent: "\x82\x03\x01hi\x82\x03\x03{}", none: true},
		{name: "a result in several frames", sent: "\x02\x01\x03\x80\x02{}", none: true},
		{name: "a close message", sent: "\x88\x02\x03\xe8", none: true},
		{name: "the middle of a close message", sent: "\x88\x02\x03", none: true},
		{name: "the middle of a header", sent: "\x82\x7e\x01", none: true},
		{name: "the middle of a frame without end", sent: "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff\x01", none: true},
		{name: "output in base64", sent: "\x81\x051aGk=", base64: true},
		{name: "a result in base64", sent: "\x81\x053e30=", base64: true, none: true},
	} {
		for _, piece := range []int{1, 2, 5, 1 << 20} {
			near, far := net.Pipe()
			_ = far.Close() // the runtime sends no more
			v, client := &socketVerdict{base64: c.base64}, &record{}
			for rest := c.sent; len(rest) > 0; {
				n := min(piece, len(rest))
				v.fromRuntime([]byte(rest[:n]))
				rest = rest[n:]
			}
			v.close(client, &upstream{Conn: near, in: near}, io.EOF)
			_ = near.Close()
			got := client.String()
			if c.none {
				if strings.Contains(got, "Failure") {
					t.Errorf("%s, in pieces of %d: the client gets %q", c.name, piece, got)
				}
				continue
			}
			rest, ok := strings.CutPrefix(got, c.before)
			body, closed := strings.CutSuffix(rest, "\x88\x02\x03\xe8")
			if ok = ok && closed && len(body) > 5; ok && c.base64 {
				data, err := base64.StdEncoding.DecodeString(body[5:])
				ok = err == nil && body[0] == '\x81' && body[4] == '3'
				body = body[:5] + string(data)
			} else if ok {
				ok = body[0] == '\x82' && body[4] == 3
			}
			if !ok || !strings.Contains(body, `"status":"Failure"`) {
				t.Errorf("%s, in pieces of %d: the client gets %q", c.name, piece, got)
			}
		}
	}
}
