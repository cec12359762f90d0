package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrPeer means that the process at the other end of a Unix socket may not use the socket.
var ErrPeer = errors.New("this process may not use the control socket")

// LocalPeer returns nil if the request came over a Unix socket from a process that belongs to the machine: it runs as
// root or as the agent's user, in the mount and PID namespaces of this process or of process 1. A container that sees
// the socket's file, through a hostPath volume of a directory above it, is in other namespaces. LocalPeer accepts every
// connection that is not a Unix socket.
func LocalPeer(ctx context.Context) error {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	if b, ok := c.(*boundedConn); ok {
		c = b.Conn
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: find its process: %w", ErrPeer, err)
	}
	var refused error
	if err := raw.Control(func(fd uintptr) { refused = checkPeer(int(fd)) }); err != nil {
		refused = err
	}
	if refused != nil {
		return fmt.Errorf("%w: %w", ErrPeer, refused)
	}
	return nil
}

// checkPeer checks the process that connected to a socket.
func checkPeer(fd int) error {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return fmt.Errorf("find its process: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("it runs as user %d, not as root or as the agent's user", cred.Uid)
	}
	if cred.Pid == 0 {
		return errors.New("it is in another PID namespace")
	}
	// The process ID may belong to another process by now, but a process descriptor (pidfd) belongs to the process that
	// connected. Kernels before 6.5 cannot return a process descriptor for a socket, so on these kernels checkPeer opens the
	// descriptor by the process ID.
	process, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		process, err = unix.PidfdOpen(int(cred.Pid), 0)
	}
	if err != nil {
		return fmt.Errorf("find its process %d: %w", cred.Pid, err)
	}
	defer unix.Close(process) //nolint:errcheck // the descriptor is only used to look at the process
	for _, kind := range []string{"mnt", "pid"} {
		theirs, err := os.Readlink("/proc/" + strconv.Itoa(int(cred.Pid)) + "/ns/" + kind)
		if err != nil {
			return fmt.Errorf("find the namespaces of its process %d: %w", cred.Pid, err)
		}
		ours, err := machineNamespaces(kind)
		if err != nil {
			return err
		}
		if !slices.Contains(ours, theirs) {
			return fmt.Errorf("process %d is in another %s namespace: it is in a container", cred.Pid, kind)
		}
	}
	// If the process still lives, no other process can have had its ID, so the namespaces that were read are those of
	// the process that connected.
	if err := unix.PidfdSendSignal(process, syscall.Signal(0), nil, 0); err != nil {
		return fmt.Errorf("process %d has ended", cred.Pid)
	}
	return nil
}

// machineNamespaces returns the machine's namespaces: those of the agent and those of process 1, because the agent's unit may
// have a mount namespace of its own.
func machineNamespaces(kind string) ([]string, error) {
	own, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return nil, fmt.Errorf("find our own %s namespace: %w", kind, err)
	}
	all := []string{own}
	if first, err := os.Readlink("/proc/1/ns/" + kind); err == nil {
		all = append(all, first)
	}
	return all, nil
}
