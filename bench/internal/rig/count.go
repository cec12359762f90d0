package rig

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/net/http2/hpack"
)

// Counter is a proxy for the runtime's CRI socket. It counts the calls by name and passes all data on unchanged.
type Counter struct {
	Socket string
	to     string
	l      net.Listener

	mu    sync.Mutex
	calls map[string]int
	conns map[net.Conn]bool // open connections; nil: the proxy is closed
	wg    sync.WaitGroup
}

// Count starts a counting proxy for the socket of the rig's runtime.
func (r *Rig) Count() (*Counter, error) {
	return count(r.path("count.sock"), r.Socket)
}

// count starts a proxy that listens on socket and connects to the socket to.
func count(socket, to string) (*Counter, error) {
	c := &Counter{Socket: socket, to: to, calls: map[string]int{}, conns: map[net.Conn]bool{}}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var err error
	if c.l, err = net.Listen("unix", c.Socket); err != nil {
		return nil, err
	}
	c.wg.Go(func() {
		for {
			from, err := c.l.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.serve(from) })
		}
	})
	return c, nil
}

// Close ends the proxy and its connections.
func (c *Counter) Close() {
	_ = c.l.Close()
	c.mu.Lock()
	for n := range c.conns {
		_ = n.Close()
	}
	c.conns = nil
	c.mu.Unlock()
	c.wg.Wait()
}

// Calls returns how often each method was called since the previous call of Calls.
func (c *Counter) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.calls
	c.calls = map[string]int{}
	return out
}

func (c *Counter) serve(from net.Conn) {
	to, err := net.Dial("unix", c.to)
	if err != nil {
		_ = from.Close()
		return
	}
	c.mu.Lock()
	closed := c.conns == nil
	if !closed {
		c.conns[from], c.conns[to] = true, true
	}
	c.mu.Unlock()
	if closed {
		_, _ = from.Close(), to.Close()
		return
	}
	defer func() {
		_, _ = from.Close(), to.Close()
		c.mu.Lock()
		delete(c.conns, from)
		delete(c.conns, to)
		c.mu.Unlock()
	}()
	c.wg.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	})
	_ = c.relay(to, bufio.NewReaderSize(from, 64<<10))
}

// relay copies the HTTP/2 data of a client to the server, and counts the names in its request headers. It stops at the first error.
func (c *Counter) relay(to io.Writer, from *bufio.Reader) error {
	buf := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 32<<10)
	if _, err := io.ReadFull(from, buf); err != nil {
		return err
	}
	if _, err := to.Write(buf); err != nil {
		return err
	}
	names := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":path" {
			c.mu.Lock()
			c.calls[path.Base(f.Value)]++
			c.mu.Unlock()
		}
	})
	for {
		buf = buf[:9]
		if _, err := io.ReadFull(from, buf); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(buf[:4]) >> 8)
		kind, flags := buf[3], buf[4]
		buf = slices.Grow(buf, n)[:9+n]
		if _, err := io.ReadFull(from, buf[9:]); err != nil {
			return err
		}
		if _, err := to.Write(buf); err != nil {
			return err
		}
		const headers, continuation, padded, priority = 0x1, 0x9, 0x8, 0x20
		if kind != headers && kind != continuation {
			continue
		}
		block := buf[9:]
		if kind == headers && flags&padded != 0 {
			block = block[1 : len(block)-int(block[0])]
		}
		if kind == headers && flags&priority != 0 {
			block = block[5:]
		}
		if _, err := names.Write(block); err != nil {
			return fmt.Errorf("read request headers: %w", err)
		}
	}
}

// Requests returns how many requests a node sent to the API server, by verb and resource. It reads the audit log from offset (in bytes) to
// its end.
func (r *Rig) Requests(node string, offset int64) (map[string]int, error) {
	f, err := os.Open(r.AuditLog())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < offset {
		return nil, fmt.Errorf("%s has %d bytes and had %d before: the API server began it anew", r.AuditLog(), st.Size(), offset)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	out := map[string]int{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e struct {
			Verb string `json:"verb"`
			User struct {
				Username string `json:"username"`
			} `json:"user"`
			Object struct {
				Resource    string `json:"resource"`
				Subresource string `json:"subresource"`
			} `json:"objectRef"`
		}
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			continue // the last line may be incomplete
		}
		if e.User.Username == "system:node:"+node {
			what := e.Verb + " " + e.Object.Resource
			if e.Object.Subresource != "" {
				what += "/" + e.Object.Subresource
			}
			out[what]++
		}
	}
	return out, s.Err()
}

// AuditSize returns the present size of the audit log, as an offset for Requests.
func (r *Rig) AuditSize() int64 {
	st, err := os.Stat(r.AuditLog())
	if err != nil {
		return 0
	}
	return st.Size()
}
