package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// controlListener is the control socket. The agent holds a lock on a file beside the socket, and the kernel releases the lock when the
// agent ends. So an agent that can take the lock knows that no other agent uses the socket.
type controlListener struct {
	net.Listener
	lock *os.File
	once sync.Once
	err  error
}

// Close stops listening and removes the socket.
func (l *controlListener) Close() error {
	l.once.Do(func() {
		l.err = l.Listener.Close()
		_ = os.Remove(l.lock.Name())
		_ = l.lock.Close()
	})
	return l.err
}

const lockSuffix = ".lock"

// ErrInUse means that another agent listens on the socket.
var ErrInUse = errors.New("another agent listens on this socket")

// Listen creates a Unix socket that only its owner may open. It creates the socket's directory if it is missing. private is the path
// of the agent's own directory: if the socket is in this directory, the directory must belong to this user, and Listen closes it to
// other users. Listen does not replace a file that is no socket.
func Listen(path, private string) (net.Listener, error) {
	if err := socketDir(filepath.Dir(path), private); err != nil {
		return nil, err
	}
	return listen(path)
}

// ErrAnswers means that a process accepts connections on the socket.
var ErrAnswers = errors.New("another process serves there: end it, or choose another path")

// ListenUnused does the same as Listen for a path that programs without a lock use too, for example the socket of a container runtime. It
// replaces only a socket on which nobody listens: if a process accepts connections there, it returns ErrAnswers. The socket's directory must exist.
func ListenUnused(path string) (net.Listener, error) {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode().Type() == fs.ModeSocket:
		c, err := net.Dial("unix", path) // it does not wait
		if err == nil {
			_ = c.Close()
			return nil, ErrAnswers
		}
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) { // for example EAGAIN: a process listens, and is busy
			return nil, fmt.Errorf("find out whether another process serves there: %w", err)
		}
	}
	return listen(path)
}

// listen locks the path of a socket, removes the socket that is there, and listens. It returns an error if there is a file of another type, which
// somebody may have named by mistake.
func listen(path string) (net.Listener, error) {
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s is no socket: choose another path for the socket, or remove the file", path)
	}
	lock, err := lockFile(path + lockSuffix)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = lock.Close()
		return nil, fmt.Errorf("remove the socket that an earlier process left: %w", err)
	}
	// The mode is set on the descriptor before the listener creates the socket's file, so the file never has a wider mode: a process that
	// could open the file for a moment could keep it open. A umask would have the same effect, but it would apply to the whole process.
	own := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var refused error
		err := conn.Control(func(fd uintptr) { refused = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, refused)
	}}
	l, err := own.Listen(context.Background(), "unix", path)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("listen on the socket %s (a path has at most 107 bytes): %w", path, err)
	}
	return &controlListener{Listener: l, lock: lock}, nil
}

// socketDir creates the directory of a control socket. The private directory must belong to the agent's user and be closed to others.
// A directory that the user configured is not checked.
func socketDir(dir, private string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the control socket: %w", err)
	}
	if dir != private {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("check the directory of the control socket: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s must be a directory that belongs to user %d: remove the file or directory at this path", dir, os.Geteuid())
	}
	if st.Mode&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
			return fmt.Errorf("close the directory of the control socket to others: %w", err)
		}
	}
	return nil
}

// lockFile creates and locks a file, or returns ErrInUse.
func lockFile(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := hostfs.Lock(lock); err != nil {
		_ = lock.Close()
		if errors.Is(err, hostfs.ErrLocked) {
			return nil, ErrInUse
		}
		return nil, err
	}
	// The last holder of the lock may have removed the file after this process opened it.
	mine, err1 := lock.Stat()
	there, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
		_ = lock.Close()
		return nil, errors.New("another agent has just released this socket: try again")
	}
	return lock, nil
}
