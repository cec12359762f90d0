package server

import (
	"io"
	"sync"
	"time"
)

// idle ends a stream that carries no data for a time. It uses one timer per stream: when the timer fires, it checks
// when the stream was last used.
type idle struct {
	limit time.Duration

	mu    sync.Mutex
	used  time.Time
	timer *time.Timer
}

// watchIdle calls end when the stream has been idle for limit. If limit is 0, it never calls end. stop ends the watch.
func watchIdle(limit time.Duration, end func()) (i *idle, stop func()) {
	i = &idle{limit: limit, used: time.Now()}
	if limit <= 0 {
		return i, func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.timer = time.AfterFunc(limit, func() {
		i.mu.Lock()
		left := i.limit - time.Since(i.used)
		if left > 0 {
			i.timer.Reset(left)
		}
		i.mu.Unlock()
		if left <= 0 {
			end()
		}
	})
	return i, func() { i.timer.Stop() }
}

// touch records that the stream is in use.
func (i *idle) touch() {
	if i.limit <= 0 {
		return
	}
	i.mu.Lock()
	i.used = time.Now()
	i.mu.Unlock()
}

// meter finds the frames in a byte stream that are more than pings. Clients ping every few seconds, and a stream that
// carries only pings is idle. It reads the headers of frames and skips their contents.
type meter struct {
	// size reads a header. It returns how many bytes follow, and whether the frame is more than a ping. ok is false if
	// the header is not complete yet.
	size func(header []byte) (follow uint64, counts, ok bool)

	header []byte // the beginning of the next frame's header: 10 bytes at most
	follow uint64
}

// carries reports whether the next bytes of the stream belong to a frame that is not a ping.
func (m *meter) carries(b []byte) (counts bool) {
	for len(b) > 0 {
		if m.follow > 0 {
			n := min(m.follow, uint64(len(b)))
			m.follow -= n
			b = b[n:]
			continue
		}
		m.header = append(m.header, b[0])
		b = b[1:]
		follow, c, ok := m.size(m.header)
		if !ok {
			continue
		}
		counts = counts || c
		m.header, m.follow = m.header[:0], follow
	}
	return counts
}

// spdyFrame reads the header of a frame of SPDY/3.1: 8 bytes, the last 3 of them the length; control frame 6 is a ping.
func spdyFrame(h []byte) (follow uint64, counts, ok bool) {
	if len(h) < 8 {
		return 0, false, false
	}
	ping := h[0]&0x80 != 0 && h[2] == 0 && h[3] == 6
	return uint64(h[5])<<16 | uint64(h[6])<<8 | uint64(h[7]), !ping, true
}

// webSocketFrame reads the header of a frame of RFC 6455; opcodes 9 and 10 are ping and pong.
func webSocketFrame(h []byte) (follow uint64, counts, ok bool) {
	if len(h) < 2 {
		return 0, false, false
	}
	n := uint64(h[1] & 0x7f)
	extended := 0
	switch n {
	case 126:
		extended = 2
	case 127:
		extended = 8
	}
	if len(h) < 2+extended {
		return 0, false, false
	}
	if extended > 0 {
		n = 0
		for _, b := range h[2 : 2+extended] {
			n = n<<8 | uint64(b)
		}
	}
	if h[1]&0x80 != 0 {
		n += 4 // a masked frame has 4 more bytes
	}
	op := h[0] & 0x0f
	return n, op != 9 && op != 10, true
}

// meterOf returns the meter for WebSocket frames or for SPDY frames.
func meterOf(webSocket bool) *meter {
	if webSocket {
		return &meter{size: webSocketFrame}
	}
	return &meter{size: spdyFrame}
}

// metered is a reader that marks the stream as used (idle.touch) when it reads frames that are more than pings.
type metered struct {
	io.Reader
	meter *meter
	idle  *idle
}

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	if n > 0 && m.meter.carries(b[:n]) {
		m.idle.touch()
	}
	return n, err
}
