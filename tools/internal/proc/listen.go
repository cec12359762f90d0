package proc

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Listen listens at a TCP address in the network namespace that the file namespace stands for.
func Listen(namespace, address string) (net.Listener, error) {
	space, err := os.Open(namespace)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", address, err)
	}
	defer func() { _ = space.Close() }()
	var listener net.Listener
	done := make(chan error)
	go func() {
		// A thread that has entered the namespace must not run anything else. It ends with this goroutine, because it stays locked to it.
		runtime.LockOSThread()
		err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			listener, err = net.Listen("tcp", address)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("listen at %s in the network namespace %s: %w", address, namespace, err)
	}
	return listener, nil
}
