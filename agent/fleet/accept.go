package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// acceptor accepts the connections of many listeners in one goroutine. A goroutine for the listener of each node would cost a fleet of 5,000
// nodes 40 MB of stacks. Methods may be called concurrently.
type acceptor struct {
	epoll *os.File // the epoll instance that has all listeners
	raw   syscall.RawConn
	log   *slog.Logger

	mu    sync.Mutex
	doors map[int32]*door // the listeners that Follow was called for, by file descriptor
}

const (
	// acceptsAtOnce is how many connections the acceptor takes from one listener before it takes those of the others.
	acceptsAtOnce = 16
	// acceptPause is the wait after an error of the machine, for example when the process has too many open files. It delays all listeners,
	// because the error does, too.
	acceptPause = 100 * time.Millisecond
)

// newAcceptor returns an acceptor. It accepts nothing before run.
func newAcceptor(log *slog.Logger) (*acceptor, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll instance for the listeners of the nodes: %w", err)
	}
	_ = unix.SetNonblock(fd, true) // so that Go's own poller waits for it; an error is not possible for a valid descriptor
	a := &acceptor{epoll: os.NewFile(uintptr(fd), "epoll"), log: log, doors: map[int32]*door{}}
	if a.raw, err = a.epoll.SyscallConn(); err != nil {
		_ = a.epoll.Close()
		return nil, fmt.Errorf("poll the listeners of the nodes: %w", err)
	}
	return a, nil
}

// run accepts connections until ctx ends.
func (a *acceptor) run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = a.epoll.Close() })()
	events := make([]unix.EpollEvent, 64)
	for {
		var n int
		var failed error
		err := a.raw.Read(func(fd uintptr) (done bool) {
			n, failed = unix.EpollWait(int(fd), events, 0)
			return n != 0
		})
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return
		case errors.Is(failed, unix.EINTR): // a signal: ask again at once, because no further event may come
		case err != nil || failed != nil:
			a.log.Error("cannot wait for connections to the nodes' HTTPS APIs, will try again", "err", errors.Join(err, failed))
			if !pause(ctx, acceptPause) {
				return
			}
		}
		for _, e := range events[:max(n, 0)] {
			a.mu.Lock()
			d := a.doors[e.Fd]
			a.mu.Unlock()
			if d == nil {
				continue // it was closed meanwhile
			}
			if err := d.take(); err != nil {
				a.log.Error("cannot accept a connection, will try again", "address", d.Addr().String(), "err", err)
				if !pause(ctx, acceptPause) {
					return
				}
			}
		}
	}
}

// listen opens a listener whose connections the acceptor accepts after Follow was called.
func (a *acceptor) listen(address string) (*door, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	d := &door{TCPListener: l.(*net.TCPListener), in: a}
	if d.raw, err = d.SyscallConn(); err == nil {
		err = errors.Join(d.raw.Control(func(fd uintptr) { d.fd = int32(fd) }), d.control(unix.EPOLL_CTL_ADD, 0))
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("poll the port %s: %w", l.Addr(), err)
	}
	return d, nil
}

// door is a listener of an acceptor.
type door struct {
	*net.TCPListener
	in       *acceptor
	raw      syscall.RawConn
	fd       int32
	accepted func(net.Conn)
}

// control adds the listener to the epoll instance, or changes for which events the instance reports it.
func (d *door) control(op int, events uint32) error {
	var err error
	failed := d.raw.Control(func(fd uintptr) {
		outer := d.in.raw.Control(func(epoll uintptr) {
			err = unix.EpollCtl(int(epoll), op, int(fd), &unix.EpollEvent{Events: events, Fd: int32(fd)})
		})
		err = errors.Join(outer, err)
	})
	return errors.Join(failed, err)
}

// Follow calls accepted for each connection, in the acceptor's goroutine, until the listener is closed. accepted must not block.
func (d *door) Follow(accepted func(net.Conn)) {
	d.accepted = accepted
	d.in.mu.Lock()
	d.in.doors[d.fd] = d
	d.in.mu.Unlock()
	if err := d.control(unix.EPOLL_CTL_MOD, unix.EPOLLIN); err != nil { // only if the listener or the acceptor is closed
		d.in.log.Debug("a closed port is not polled", "address", d.Addr().String(), "err", err)
	}
}

// Close closes the listener. The kernel removes a closed listener from the epoll instance.
func (d *door) Close() error {
	d.in.mu.Lock()
	if d.in.doors[d.fd] == d {
		delete(d.in.doors, d.fd)
	}
	d.in.mu.Unlock()
	return d.TCPListener.Close()
}

// take accepts the connections that wait, at most acceptsAtOnce. It returns an error only if the machine cannot accept now.
func (d *door) take() error {
	for range acceptsAtOnce {
		conn, err := d.next()
		switch {
		case err == nil:
			d.accepted(conn)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED): // a signal; a client that has gone
		case errors.Is(err, unix.EAGAIN), errors.Is(err, net.ErrClosed): // no connection waits any more
			return nil
		default:
			return err
		}
	}
	return nil
}

// next accepts a connection that waits; without one the error is EAGAIN.
func (d *door) next() (net.Conn, error) {
	var fd int
	var err error
	if control := d.raw.Control(func(l uintptr) {
		fd, _, err = unix.Accept4(int(l), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	}); control != nil {
		return nil, control
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "connection")
	defer func() { _ = f.Close() }() // FileConn has duplicated it
	return net.FileConn(f)
}
