package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"time"
)

// Delayed is a proxy for the API server. It delays all data that the server sends (answers, TLS handshakes, watch events) and changes
// nothing else.
type Delayed struct {
	URL string
	to  string
	by  time.Duration
	l   net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool // open connections; nil: the proxy is closed
	wg    sync.WaitGroup
}

// Delay starts a proxy that delays the data of the rig's API server. Close ends the proxy.
func (r *Rig) Delay(by time.Duration) (*Delayed, error) {
	server, err := url.Parse(r.admin.Host)
	if err != nil {
		return nil, fmt.Errorf("delay the API server at %q: %w", r.admin.Host, err)
	}
	return delay(server.Host, by)
}

func delay(to string, by time.Duration) (*Delayed, error) {
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		return nil, fmt.Errorf("delay %q: %w", to, err)
	}
	d := &Delayed{to: to, by: by, conns: map[net.Conn]bool{}}
	// The proxy has the IP address of the server and another port, so that the server's certificate is valid for the proxy.
	if d.l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
		return nil, fmt.Errorf("delay %q: %w", to, err)
	}
	d.URL = "https://" + d.l.Addr().String()
	d.wg.Go(func() {
		for {
			from, err := d.l.Accept()
			if err != nil {
				return
			}
			d.wg.Go(func() { d.serve(from) })
		}
	})
	return d, nil
}

// Close ends the proxy and its connections.
func (d *Delayed) Close() {
	_ = d.l.Close()
	d.mu.Lock()
	for n := range d.conns {
		_ = n.Close()
	}
	d.conns = nil
	d.mu.Unlock()
	d.wg.Wait()
}

func (d *Delayed) serve(from net.Conn) {
	to, err := net.Dial("tcp", d.to)
	if err != nil {
		_ = from.Close()
		return
	}
	d.mu.Lock()
	closed := d.conns == nil
	if !closed {
		d.conns[from], d.conns[to] = true, true
	}
	d.mu.Unlock()
	if closed {
		_, _ = from.Close(), to.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	})
	both.Go(func() {
		_ = later(from, to, d.by)
		_ = from.Close()
	})
	both.Wait()
	d.mu.Lock()
	delete(d.conns, from)
	delete(d.conns, to)
	d.mu.Unlock()
}

// chunk is the data of one read, and the time when it is due to be written.
type chunk struct {
	data []byte
	due  time.Time
}

// later copies data until an error or EOF. It writes each byte when the duration by has passed since it read that byte. Meanwhile it
// continues to read, so that the delay does not reduce the throughput.
func later(to io.Writer, from io.Reader, by time.Duration) error {
	// At most 4096 chunks of up to 32 KiB wait to be written. If more data than that arrives within the delay, reading pauses.
	chunks, failed := make(chan chunk, 4096), make(chan struct{})
	var read, written error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(chunks)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case chunks <- chunk{bytes.Clone(buf[:n]), time.Now().Add(by)}:
				case <-failed:
					return
				}
			}
			if err != nil {
				read = err
				return
			}
		}
	})
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if _, written = to.Write(c.data); written != nil {
			close(failed)
			break
		}
	}
	if c, ok := from.(io.Closer); ok && written != nil {
		_ = c.Close() // unblocks the goroutine that reads
	}
	wg.Wait()
	if errors.Is(read, io.EOF) {
		read = nil
	}
	return errors.Join(read, written)
}

// Redirect makes the agent use another address of the API server from its next start on. An empty server restores the real address. The
// agent must be stopped.
func (a *Agent) Redirect(server string) error {
	if server == "" {
		server = a.rig.admin.Host
	}
	file := a.path("kubeconfig")
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("redirect %s: %w", a.Node, err)
	}
	text, err := redirected(old, server)
	if err != nil {
		return fmt.Errorf("redirect %s: %s: %w", a.Node, file, err)
	}
	return os.WriteFile(file, text, 0o600)
}

// redirected returns a kubeconfig in which server replaces the server's address. It returns an error unless the kubeconfig has exactly one
// server.
func redirected(kubeconfig []byte, server string) ([]byte, error) {
	var out []byte
	found := 0
	for line := range bytes.Lines(kubeconfig) {
		if key := bytes.TrimLeft(line, " "); bytes.HasPrefix(key, []byte("server: ")) {
			found++
			line = append(bytes.Clone(line[:len(line)-len(key)]), "server: "+server+"\n"...)
		}
		out = append(out, line...)
	}
	if found != 1 {
		return nil, fmt.Errorf("it names %d servers, not one", found)
	}
	return out, nil
}
