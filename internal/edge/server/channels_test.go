package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	remoteproto "k8s.io/apimachinery/pkg/util/remotecommand"
)

// lateConn is a connection on which the removal of the deadline of writes takes effect late: when another deadline has been set meanwhile.
type lateConn struct {
	net.Conn
	late  atomic.Bool   // from now on
	begun chan struct{} // closed at the first removal
	set   chan struct{} // gets a value when a deadline is set
}

func (c *lateConn) SetWriteDeadline(t time.Time) error {
	switch {
	case !c.late.Load():
	case t.IsZero():
		close(c.begun)
		select {
		case <-c.set:
		case <-time.After(100 * time.Millisecond):
		}
	default:
		select {
		case c.set <- struct{}{}:
		default:
		}
	}
	return c.Conn.SetWriteDeadline(t)
}

// hijacked is a ResponseWriter whose connection can be taken over.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// The last message of a stream is written by its deadline, or the connection is closed, beside a write of output that has just begun and that the
// client does not read. A write sets the deadline of its own after it has the lock.
func TestTheEndOfAStreamDoesNotWaitForOutput(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	go func() { // the client reads the answer to its upgrade, and nothing more
		in := bufio.NewReaderSize(far, 16) // so small that it takes no part of a message
		_, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Error(err)
		}
	}()
	r := &http.Request{Method: http.MethodGet, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
	}}
	conn := &lateConn{Conn: near, begun: make(chan struct{}), set: make(chan struct{})}
	ws, err := accept(hijacked{conn: conn}, r, remoteproto.StreamProtocolV5Name)
	if err != nil {
		t.Fatal(err)
	}
	c := newChannels(ws, Streams{Stdout: true})
	c.used, _ = watchIdle(0, nil)
	conn.late.Store(true)
	wrote := make(chan error, 1)
	go func() { wrote <- c.send(remoteproto.StreamStdOut, make([]byte, 1<<20)) }()
	<-conn.begun // the write has the lock, and has not begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan struct{})
	go func() {
		c.end(ctx, io.EOF)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the end of the stream waits for a client that reads nothing")
		c.close()
		<-ended
	}
	if err := <-wrote; err == nil {
		t.Error("output was written that nobody read")
	}
	c.close()
}
