package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlListener is the control socket. A lock beside it, which ends with its process, tells a socket that somebody
// listens on from one that was left behind.
type controlListener struct {
	net.Listener
	lock *os.File
	once sync.Once
	err  error
}

// Close ends listening and removes the socket.
func (l *controlListener) Close() error {
	l.once.Do(func() {
		l.err = l.Listener.Close()
		_ = os.Remove(l.lock.Name())
		_ = l.lock.Close()
	})
	return l.err
}

const lockSuffix = ".lock"

// ErrInUse says that another agent has the socket.
var ErrInUse = errors.New("another agent listens there")

// Listen makes a socket that only its owner may open. Its directory is made where it is missing; private is one that must belong to
// this user alone, and is closed to others.
func Listen(path, private string) (net.Listener, error) {
	if err := socketDir(filepath.Dir(path), private); err != nil {
		return nil, err
	}
	lock, err := lockFile(path + lockSuffix)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = lock.Close()
		return nil, fmt.Errorf("remove the control socket that an earlier agent left: %w", err)
	}
	// The mode is right from the beginning: whoever could open the socket for a moment could keep it open. The file takes over
	// that of the socket; a umask would be the whole process's.
	own := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var refused error
		err := conn.Control(func(fd uintptr) { refused = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, refused)
	}}
	l, err := own.Listen(context.Background(), "unix", path)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("listen on the control socket %s (paths have 107 bytes at most): %w", path, err)
	}
	return &controlListener{Listener: l, lock: lock}, nil
}

// socketDir makes the directory of a control socket. The private one must be ours alone; one that somebody named is as it is.
func socketDir(dir, private string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the control socket: %w", err)
	}
	if dir != private {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("look at the directory of the control socket: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s must be a directory of user %d: remove what is there", dir, os.Geteuid())
	}
	if st.Mode&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
			return fmt.Errorf("close the directory of the control socket to others: %w", err)
		}
	}
	return nil
}

// lockFile makes and locks a file, or returns ErrInUse.
func lockFile(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, ErrInUse
	}
	// The one who had it may have removed it since it was opened here.
	mine, err1 := lock.Stat()
	there, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
		_ = lock.Close()
		return nil, errors.New("another agent has just ended there: try again")
	}
	return lock, nil
}
