package server

import (
	"fmt"
	"net"
	"testing"
)

// If there are too many connections, the peer with the most connections loses its oldest one. If each peer has one connection, the
// oldest of all connections is closed, so that a new client has time to authenticate. A connection that is authorised or closed no
// longer counts.
func TestUnknownConnectionsAreSharedFairly(t *testing.T) {
	t.Parallel()
	l := newBoundedListener(nil, 3)
	open := func(peer string) (c, over *boundedConn) {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		c = &boundedConn{Conn: a, listener: l, peer: peer}
		if over = l.add(c); over != nil {
			l.drop(over)
		}
		return c, over
	}
	a1, _ := open("a")
	a2, _ := open("a")
	b1, over := open("b")
	if over != nil {
		t.Fatalf("%s lost one though there is room", over.peer)
	}
	c1, over := open("c")
	if over != a1 {
		t.Errorf("want the oldest of a to go, got %+v", over)
	}
	if _, over = open("d"); over != a2 {
		t.Errorf("want the oldest of all to go, got %+v", over)
	}
	if _, over = open("b"); over != b1 {
		t.Errorf("want the older of b to go, got %+v", over)
	}
	if err := c1.Close(); err != nil {
		t.Error(err)
	}
	if _, over = open("e"); over != nil {
		t.Errorf("a closed connection holds a slot: %+v", over)
	}
	for i := range 1000 {
		c, _ := open(fmt.Sprint(i))
		known(withConn(t.Context(), c)) // the client of this connection is authorised now
	}
	if l.total > 3 || len(l.unknown) > 3 {
		t.Errorf("%d counted, of %d peers", l.total, len(l.unknown))
	}
}
