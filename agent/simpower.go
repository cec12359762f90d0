package agent

import (
	"context"
	"io"
	"sync"
	"time"
)

// power is the part of a simulated machine that logind is on a real one: it says when the machine shuts down, and its agent delays the
// shutdown until its pods have ended. All methods may be called concurrently.
type power struct {
	mu    sync.Mutex
	down  bool
	buses map[*powerBus]struct{}
}

// SetShutdown makes a simulated machine begin to shut down, or cancels that. If KubeletConfiguration.shutdownGracePeriod is set, the node
// becomes not ready, refuses pods, and ends its pods in the order of their priority, as on a real machine ("Graceful node shutdown",
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/). The agent goes on: to end it is up to the caller. On the real
// machine, SetShutdown does nothing.
func (m *Machine) SetShutdown(down bool) {
	p := &m.power
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down == down {
		return
	}
	p.down = down
	for b := range p.buses {
		select {
		case b.changed <- struct{}{}:
		default: // the agent has not read the last change yet, and then reads the newest state
		}
	}
}

// open connects an agent to the power.
func (p *power) open() *powerBus {
	b := &powerBus{power: p, changed: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buses == nil {
		p.buses = map[*powerBus]struct{}{}
	}
	p.buses[b] = struct{}{}
	return b
}

// longestDelay is how long a simulated machine lets its agent delay a shutdown, in place of logind's InhibitDelayMaxSec.
const longestDelay = 24 * time.Hour

// powerBus is the connection of one agent to the power of a simulated machine (nodeshutdown.Bus).
type powerBus struct {
	power   *power
	changed chan struct{}
	once    sync.Once
}

func (b *powerBus) Shutdowns() <-chan struct{} { return b.changed }

func (b *powerBus) Preparing(context.Context) (bool, error) {
	b.power.mu.Lock()
	defer b.power.mu.Unlock()
	return b.power.down, nil
}

func (b *powerBus) MaxDelay(context.Context) (time.Duration, error) { return longestDelay, nil }
func (b *powerBus) Delay(context.Context, time.Duration) error      { return nil }
func (b *powerBus) Inhibit(context.Context) (io.Closer, error)      { return io.NopCloser(nil), nil }

func (b *powerBus) Close() error {
	b.once.Do(func() {
		b.power.mu.Lock()
		defer b.power.mu.Unlock()
		delete(b.power.buses, b)
		close(b.changed)
	})
	return nil
}
