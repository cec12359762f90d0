package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/moby/spdystream/spdy"
	v1 "k8s.io/api/core/v1"
	remoteproto "k8s.io/apimachinery/pkg/util/remotecommand"
)

// Reasons for the end of the stream of a command whose result is not known. Clients show them to their users.
var (
	errAgentEnds   = errors.New("the node's agent has ended the stream, because it stops: the command may go on, and its result is not known")
	errRuntimeEnds = errors.New("the container runtime has ended the stream without the command's result: it may have restarted")
)

// errUnused is the reason for the end of a stream that carried no data for so long.
func errUnused(limit time.Duration) error {
	return fmt.Errorf("the stream carried no data for %s (streamingConnectionIdleTimeout): the command may go on, and its result is not known", limit)
}

// whyEnded returns why the stream of a command has ended without a result: the cause of ctx if it has ended, else the end of the runtime's
// connection.
func whyEnded(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return errRuntimeEnds
	case errors.Is(cause, context.Canceled):
		return errAgentEnds
	default:
		return cause
	}
}

// These constants bound what a verdict reads of a client's frames, and the time for the end of a stream.
const (
	maxSyn       = 4 << 10 // bytes of a frame that opens a stream
	maxSyns      = 16      // such frames until the error stream is found; kubectl opens it first
	restWithin   = 500 * time.Millisecond
	cutWithin    = time.Second // for a client to read its last bytes when the agent ends
	spdyHeader   = 8           // bytes of the header of a frame
	spdyFIN      = 1
	spdySyn      = 1 // type of the frame SYN_STREAM
	spdyHeaders  = 8 // type of the frame HEADERS
	controlFrame = 0x80
)

// verdict sees to it that the stream of a command over SPDY ends with a result. A client that gets none takes the end of the connection for the
// success of the command, whatever part of its output is missing. So if the runtime has sent no result, verdict sends one: an error, in the
// stream that the client has opened for errors. It reads the frames of both sides as they pass.
//
// fromClient is called by one goroutine, all else by another.
type verdict struct {
	errors atomic.Uint32 // the client's error stream; 0: not known (yet)

	client frames
	opens  bytes.Buffer // the beginning of the client's frames that open streams, while errors is not known
	framer *spdy.Framer // reads opens; nil: the error stream is known, or will never be
	syns   int

	runtime frames
	given   bool // the runtime has sent something in the error stream
}

func newVerdict() *verdict {
	v := &verdict{}
	v.framer, _ = spdy.NewFramerWithOptions(io.Discard, &v.opens, spdy.WithMaxHeaderCount(32), spdy.WithMaxHeaderFieldSize(maxSyn)) // never fails
	return v
}

// fromClient reads the next bytes of the client.
func (v *verdict) fromClient(b []byte) {
	if v.framer == nil {
		return
	}
	v.client.read(b, func(header, part []byte, whole bool) {
		kind := binary.BigEndian.Uint16(header[2:])
		if v.framer == nil || header[0]&controlFrame == 0 || kind != spdySyn && kind != spdyHeaders { // these two share the compression of headers
			return
		}
		if part == nil {
			v.opens.Write(header)
			v.syns++
		}
		switch {
		case v.opens.Len()+len(part) > maxSyn || v.syns > maxSyns:
			v.giveUp()
		default:
			v.opens.Write(part)
			if whole {
				v.opened()
			}
		}
	})
}

// opened reads the frame in opens.
func (v *verdict) opened() {
	frame, err := v.framer.ReadFrame()
	syn, ok := frame.(*spdy.SynStreamFrame)
	switch {
	case err != nil:
		v.giveUp()
	case ok && syn.Headers.Get(v1.StreamType) == v1.StreamTypeError:
		v.errors.Store(uint32(syn.StreamId))
		v.giveUp()
	}
}

// giveUp stops reading what the client sends.
func (v *verdict) giveUp() { v.framer, v.opens = nil, bytes.Buffer{} }

// fromRuntime reads the next bytes of the runtime.
func (v *verdict) fromRuntime(b []byte) {
	v.runtime.read(b, func(header, part []byte, _ bool) {
		if header[0]&controlFrame == 0 && len(part) > 0 && binary.BigEndian.Uint32(header) == v.errors.Load() {
			v.given = true
		}
	})
}

// close sends the result if the runtime has sent none. why says why there is none. It is called when all bytes of the runtime have been passed on
// to the client.
func (v *verdict) close(client net.Conn, up *upstream, why error) {
	stream := v.errors.Load()
	if v.given || stream == 0 {
		return
	}
	if !v.finish(client, up) {
		return
	}
	body, err := json.Marshal(statusOf(why))
	if err != nil {
		return // cannot happen: a status has a JSON form
	}
	frame := binary.BigEndian.AppendUint32(nil, stream)
	frame = binary.BigEndian.AppendUint32(frame, spdyFIN<<24|uint32(len(body)))
	_, _ = client.Write(append(frame, body...)) // an error means that the client is gone
}

// finish passes on the rest of a frame of which the client has got a part. What the runtime does not send any more is replaced by zeros, so that the
// client can read the next frame. It returns false if that is not possible.
func (v *verdict) finish(client net.Conn, up *upstream) bool {
	_ = up.SetReadDeadline(time.Now().Add(restWithin))
	for v.runtime.within() {
		missing := int64(max(1, v.runtime.left))
		if n, err := io.CopyN(client, up, missing); err != nil {
			if n == 0 && v.runtime.left == 0 || v.runtime.header[0]&controlFrame != 0 {
				return false
			}
			_, err = io.CopyN(client, zeros{}, int64(v.runtime.left))
			return err == nil
		}
	}
	return true
}

// zeros is an endless source of zeros.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// frames divides a stream of SPDY/3.1 into frames.
type frames struct {
	header []byte // what has come of the header of the present frame
	left   int    // bytes that have not come yet of the content of the present frame
}

// read calls visit for each frame that begins in b, with part == nil, and for each part of a frame's content. whole says that the frame ends with
// this part.
func (f *frames) read(b []byte, visit func(header, part []byte, whole bool)) {
	for len(b) > 0 {
		if len(f.header) < spdyHeader {
			n := min(spdyHeader-len(f.header), len(b))
			f.header = append(f.header, b[:n]...)
			if b = b[n:]; len(f.header) < spdyHeader {
				return
			}
			f.left = int(binary.BigEndian.Uint32(f.header[4:]) & 0xffffff)
			visit(f.header, nil, f.left == 0)
		}
		n := min(f.left, len(b))
		f.left -= n
		if n > 0 {
			visit(f.header, b[:n], f.left == 0)
		}
		if b = b[n:]; f.left == 0 {
			f.header = f.header[:0]
		}
	}
}

// within reports whether a frame has begun and not ended.
func (f *frames) within() bool { return len(f.header) > 0 }

// seen is a reader that shows what it reads.
type seen struct {
	io.Reader
	show func([]byte)
}

func (s seen) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if n > 0 {
		s.show(b[:n])
	}
	return n, err
}

// lastWord sees to it that the stream of a command ends with a result. Its methods are those of verdict.
type lastWord interface {
	fromClient(b []byte)
	fromRuntime(b []byte)
	close(client net.Conn, up *upstream, why error)
}

// lastWordOf returns the lastWord for the stream of a command to which the runtime has agreed; nil: its protocol has no result in JSON.
func lastWordOf(r *http.Request, answer *http.Response) lastWord {
	protocol := answer.Header.Get("X-Stream-Protocol-Version")
	if isWebSocket(r) {
		protocol = answer.Header.Get("Sec-Websocket-Protocol")
	}
	switch {
	case isWebSocket(r) && (protocol == remoteproto.StreamProtocolV4Name || protocol == base64V4):
		return &socketVerdict{base64: protocol == base64V4}
	case !isWebSocket(r) && protocol == remoteproto.StreamProtocolV4Name:
		return newVerdict()
	}
	return nil
}
