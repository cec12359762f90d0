package cgroup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// systemd is asked over D-Bus by a library whose calls have no deadline. A systemd that hangs must fail the pods that need
// it, and hold up nothing else.
const (
	answerWithin = 30 * time.Second
	maxAsking    = 32 // calls that systemd may leave unanswered before no other is made
)

// ErrSystemd is a systemd that does not answer. Try again later.
var ErrSystemd = errors.New("systemd does not answer (systemctl status; is D-Bus up?)")

// answered runs a call of the library, and with the systemd driver gives it up after answerWithin or when ctx ends. The
// library cannot cut a call short: one that was given up goes on in a goroutine that nobody waits for, and counts against
// maxAsking until it ends. With the cgroupfs driver the kernel answers, at once.
func (c *Cgroups) answered(ctx context.Context, call func() error) error {
	if !c.names.systemd {
		return call()
	}
	c.mu.Lock()
	if c.asking >= maxAsking {
		c.mu.Unlock()
		return fmt.Errorf("%w: %d calls wait", ErrSystemd, maxAsking)
	}
	c.asking++
	c.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		err := call()
		c.mu.Lock()
		c.asking--
		c.mu.Unlock()
		done <- err
	}()
	limit := time.NewTimer(answerWithin)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return fmt.Errorf("%w within %v", ErrSystemd, answerWithin)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
