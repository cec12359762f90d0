package main

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

	"github.com/wherry-node/wherry/internal/config"
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

// errInUse: another agent has the socket.
var errInUse = errors.New("another agent listens there")

// listenControl makes a socket that only its owner may open.
func listenControl(path string) (net.Listener, error) {
	if err := socketDir(filepath.Dir(path)); err != nil {
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
	private := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var refused error
		err := conn.Control(func(fd uintptr) { refused = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, refused)
	}}
	l, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("listen on the control socket %s (paths have 107 bytes at most): %w", path, err)
	}
	return &controlListener{Listener: l, lock: lock}, nil
}

// socketDir makes the directory of a control socket. The usual one must be ours alone; one that somebody named is as it is.
func socketDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the control socket: %w", err)
	}
	if dir != config.SocketDir {
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

// lockFile makes and locks a file, or says errInUse.
func lockFile(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, errInUse
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

// runSocket is where wherry run listens.
func runSocket() string {
	if os.Geteuid() == 0 {
		return config.SystemSocket
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "wherry.sock")
	}
	return filepath.Join(userDir(), "wherry.sock")
}

// userDir is where somebody who is not root keeps the state of their node.
func userDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "wherry")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	return filepath.Join(home, ".local", "share", "wherry")
}

// findSocket is the socket that an agent listens on: the one that was asked for, or the first of the usual ones that
// answers.
func findSocket(ctx context.Context, asked string) (string, error) {
	if asked == "" {
		asked = os.Getenv("WHERRY_SOCKET")
	}
	candidates := []string{asked}
	if asked == "" {
		candidates = []string{runSocket()}
		others, _ := filepath.Glob(filepath.Join(config.SocketDir, "*.sock")) // agents with a --root-dir of their own
		for _, path := range others {
			if path != candidates[0] {
				candidates = append(candidates, path)
			}
		}
	}
	var refused error
	for _, path := range candidates {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			_ = conn.Close()
			return path, nil
		}
		if errors.Is(err, os.ErrPermission) {
			refused = fmt.Errorf("the agent's socket %s belongs to somebody else: run this as its owner (sudo)", path)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", noAgent{candidates[0]}
}

// noAgent: nobody listens.
type noAgent struct{ socket string }

func (e noAgent) Error() string {
	return fmt.Sprintf("no agent listens on %s: start one with \"wherry run\" or \"wherry kubelet\", or name its socket with --socket; "+
		"a node of a cluster has one only with --push-socket=%s or controlSocket.enabled: true in its --wherry-config", e.socket, config.SystemSocket)
}
