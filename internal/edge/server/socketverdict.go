package server

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"time"

	remoteproto "k8s.io/apimachinery/pkg/util/remotecommand"
)

// These constants are parts of the frames of RFC 6455, and the form of protocol v4 for clients that cannot read binary messages.
const (
	socketFIN      = 0x80 // the frame ends its message
	socketText     = 1
	socketBinary   = 2
	socketClose    = 8
	socketControl  = 8 // control frames have this opcode or a higher one
	socketExtended = 126
	closeNormally  = 1000

	base64V4 = "v4.base64.channel.k8s.io"
)

// socketVerdict sees to it that the stream of a command over WebSocket ends with a result, as verdict does over SPDY. Without it, a client of
// v4.channel.k8s.io only sees that the connection broke, and does not learn why. It reads the frames of the runtime as they pass. (translate does the
// same for clients of v5.) All methods are called by one goroutine, except fromClient.
type socketVerdict struct {
	base64 bool // messages are text: the channel as a digit, and its data in base64

	header []byte // what has come of the header of the present frame
	whole  bool   // all of it has come
	left   uint64 // bytes that have not come yet of the content of the present frame
	begins bool   // the next byte of content is the channel of a message
	long   bool   // the message has more than the channel
	open   bool   // the frames of a message have begun, and the last one has not come
	closed bool   // the runtime has begun to send a close message
	given  bool   // the runtime has sent something in the error channel
}

// fromClient ignores what the client sends.
func (v *socketVerdict) fromClient([]byte) {}

// fromRuntime reads the next bytes of the runtime.
func (v *socketVerdict) fromRuntime(b []byte) {
	for len(b) > 0 {
		if !v.whole {
			v.header = append(v.header, b[0])
			b = b[1:]
			if v.left, _, v.whole = webSocketFrame(v.header); !v.whole {
				continue
			}
			v.opened()
		}
		n := min(v.left, uint64(len(b)))
		if n > 0 && v.begins && v.opcode() < socketControl {
			v.begins = false
			v.given = v.given || v.long && b[0] == v.channel()
		}
		b = b[n:]
		if v.left -= n; v.left == 0 {
			v.header, v.whole = v.header[:0], false
		}
	}
}

func (v *socketVerdict) opcode() byte { return v.header[0] & 0x0f }

// channel returns the first byte of a message in the error channel.
func (v *socketVerdict) channel() byte {
	if v.base64 {
		return '0' + remoteproto.StreamErr
	}
	return remoteproto.StreamErr
}

// opened notes what the header of a frame says.
func (v *socketVerdict) opened() {
	final := v.header[0]&socketFIN != 0
	switch op := v.opcode(); {
	case op == socketClose:
		v.closed = true
	case op == socketText || op == socketBinary:
		v.begins, v.long, v.open = true, v.left > 1 || !final, !final
	case op < socketControl: // one more frame of the message
		v.open = !final
	}
}

// close sends the result if the runtime has sent none, and a close message. why says why there is none. It is called when all bytes of the runtime have
// been passed on to the client.
func (v *socketVerdict) close(client net.Conn, up *upstream, why error) {
	if v.given || v.closed || !v.finish(client, up) || v.given || v.closed {
		return
	}
	body, err := json.Marshal(statusOf(why))
	if err != nil {
		return // cannot happen: a status has a JSON form
	}
	kind := byte(socketBinary)
	if v.base64 {
		kind, body = socketText, base64.StdEncoding.AppendEncode(nil, body)
	}
	var out []byte
	if v.open {
		out = append(out, socketFIN, 0) // an empty last frame of the runtime's message
	}
	out = append(out, socketFIN|kind, socketExtended)
	out = binary.BigEndian.AppendUint16(out, uint16(len(body)+1)) // the messages of a status are much shorter than 64 KiB
	out = append(append(out, v.channel()), body...)
	out = append(out, socketFIN|socketClose, 2)
	_, _ = client.Write(binary.BigEndian.AppendUint16(out, closeNormally)) // an error means that the client is gone
}

// finish passes on the rest of a frame of which the client has got a part, or zeros in its place, so that the client can read the next frame. It
// returns false if that is not possible.
func (v *socketVerdict) finish(client net.Conn, up *upstream) bool {
	_ = up.SetReadDeadline(time.Now().Add(restWithin))
	for len(v.header) > 0 {
		missing := int64(1) // of the header
		if v.whole {
			missing = int64(min(v.left, 1<<62))
		}
		if _, err := io.CopyN(client, up, missing); err == nil {
			continue
		}
		if !v.whole || v.left > maxMessage || v.base64 { // zeros are no base64
			return false
		}
		_, err := io.CopyN(client, zeros{}, int64(v.left))
		return err == nil
	}
	return true
}
