package server

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
)

// DefaultUnknownConnections is how many connections of unknown clients a listener has at most unless told otherwise.
const DefaultUnknownConnections = 256

// boundedListener bounds the connections whose client has not yet been allowed anything. A connection costs memory, for
// TLS and HTTP/2, before anybody says who is there. Where there are too many, the peer with the most of them loses its
// oldest: a client that is known after its first request is not among them for long, and one that floods displaces itself.
type boundedListener struct {
	net.Listener
	max int

	mu      sync.Mutex
	total   int
	numbers uint64                    // connections that there have been
	unknown map[string][]*boundedConn // by peer, oldest first; an entry is not empty
}

func newBoundedListener(l net.Listener, limit int) *boundedListener {
	if limit <= 0 {
		limit = DefaultUnknownConnections
	}
	return &boundedListener{Listener: l, max: limit, unknown: map[string][]*boundedConn{}}
}

// Accept waits for the next connection. It may be closed already, where it was the one too many.
func (l *boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundedConn{Conn: conn, listener: l, peer: peerName(remoteOf(conn))}
	if over := l.add(c); over != nil {
		_ = over.Close()
	}
	return c, nil
}

func remoteOf(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// add counts a connection and returns the one that has to go for it, if any.
func (l *boundedListener) add(c *boundedConn) (over *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbers++
	c.number = l.numbers
	l.unknown[c.peer] = append(l.unknown[c.peer], c)
	l.total++
	if l.total <= l.max {
		return nil
	}
	var most []*boundedConn
	for peer, conns := range l.unknown {
		// Among equals it is the peer that comes now.
		if len(conns) > len(most) || len(conns) == len(most) && peer == c.peer {
			most = conns
		}
	}
	oldest := most[0]
	if len(most) == 1 {
		// Each comes from an address of its own. The oldest has had the most time to say who it is.
		for _, conns := range l.unknown {
			if conns[0].number < oldest.number {
				oldest = conns[0]
			}
		}
	}
	return oldest
}

// drop counts a connection no more: it is closed, or its client is known.
func (l *boundedListener) drop(c *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	conns := l.unknown[c.peer]
	i := slices.Index(conns, c)
	if i < 0 {
		return
	}
	l.total--
	if conns = slices.Delete(conns, i, i+1); len(conns) == 0 {
		delete(l.unknown, c.peer)
		return
	}
	l.unknown[c.peer] = conns
}

// boundedConn is a connection that a boundedListener counts.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	peer     string
	number   uint64
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.listener.drop(c)
	return c.Conn.Close()
}

// CloseWrite ends our side; streams end with it.
func (c *boundedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Conn.Close()
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// withConn keeps the connection that Serve accepted, below TLS.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// known says that the client of a request has been let in: its connection is not bounded any more.
func known(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*boundedConn); ok {
		c.listener.drop(c)
	}
}
