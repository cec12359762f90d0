package server

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
)

// DefaultUnknownConnections is the default of Config.UnknownConnections.
const DefaultUnknownConnections = 256

// boundedListener bounds the connections whose client has not been authorised yet. Each costs memory, for TLS and HTTP/2, before its
// client shows any credentials. When there are too many, the listener takes the peer that has the most of these connections, and
// closes the oldest one of that peer. So a client that opens very many connections displaces its own. A connection stops counting
// with its first authorised request.
type boundedListener struct {
	net.Listener
	max int

	mu      sync.Mutex
	total   int
	numbers uint64                    // connections accepted so far
	unknown map[string][]*boundedConn // connections by peer (see peerName), oldest first; a peer without a connection has no entry
}

func newBoundedListener(l net.Listener, limit int) *boundedListener {
	if limit <= 0 {
		limit = DefaultUnknownConnections
	}
	return &boundedListener{Listener: l, max: limit, unknown: map[string][]*boundedConn{}}
}

// Accept waits for the next connection. If there were too many connections, the one that it returns may be closed already.
func (l *boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.admit(conn), nil
}

// admit counts a new connection. If there are too many, it closes one, which may be the new one.
func (l *boundedListener) admit(conn net.Conn) *boundedConn {
	c := &boundedConn{Conn: conn, listener: l, peer: peerName(remoteOf(conn))}
	if over := l.add(c); over != nil {
		_ = over.Close()
	}
	return c
}

func remoteOf(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// add counts a connection. If there are too many connections now, add returns the one that the caller must close, and otherwise nil.
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
		// Among peers with equally many connections, the new connection's peer loses one.
		if len(conns) > len(most) || len(conns) == len(most) && peer == c.peer {
			most = conns
		}
	}
	oldest := most[0]
	if len(most) == 1 {
		// Every peer has one connection. The oldest connection is closed, because its client has had the most time to
		// authenticate.
		for _, conns := range l.unknown {
			if conns[0].number < oldest.number {
				oldest = conns[0]
			}
		}
	}
	return oldest
}

// drop stops counting a connection, because the connection is closed or its client is authorised.
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

// CloseWrite closes the sending side of the connection. A stream needs it to pass on the end of its input.
func (c *boundedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Conn.Close()
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// withConn stores a connection in the context of its requests. For TLS, it stores the connection below TLS, which Accept has
// returned.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// known stops counting the connection of a request, because its client is authorised.
func known(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*boundedConn); ok {
		c.listener.drop(c)
	}
}
