package cgroup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The library opencontainers/cgroups calls systemd over D-Bus without a timeout. Because of these limits, a systemd that hangs
// affects only the pods whose cgroup it has to change.
const (
	answerWithin = 30 * time.Second
	maxAsking    = 32 // how many calls may wait for systemd; further calls fail at once
)

// ErrSystemd means that systemd does not answer. Try again later.
var ErrSystemd = errors.New("systemd does not answer (systemctl status; is D-Bus up?)")

// answered runs a call of the library. With the systemd driver it stops waiting after answerWithin, or when ctx ends. The
// library cannot cancel a call, so the call continues in its goroutine and counts against maxAsking until it ends. With the
// cgroupfs driver the kernel answers at once.
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
