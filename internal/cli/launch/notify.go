package launch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/edge/sdnotify"
)

const (
	// startsFor is how long a service manager waits for a start. Then it hears that the agent works on it: what holds it up may be a
	// person who has to approve a certificate, and a machine's boot must not wait for that.
	startsFor = 20 * time.Second
	// reportEvery is how often the status line is looked at.
	reportEvery = 10 * time.Second
)

// service is what a service manager asks of the node.
type service struct {
	started <-chan struct{} // closed when the node is at work; alive and summary are not called before
	alive   func(context.Context) error
	summary func() string
}

// runSupervised runs the node and tells the service manager how it is: ready, its status line, that it stops, and a sign of life after
// each half of the watchdog's time in which the node's loops turned.
func runSupervised(ctx context.Context, m *sdnotify.Manager, s service, log *slog.Logger, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var reports sync.WaitGroup
	defer func() {
		cancel()
		reports.Wait()
		_ = m.Close()
	}()
	n := notifier{service: s, manager: m, log: log}
	reports.Go(func() { n.run(ctx) })
	return run(ctx)
}

// notifier is what runSupervised runs beside the node.
type notifier struct {
	service
	manager *sdnotify.Manager
	log     *slog.Logger
	status  string // the last status line
	still   bool   // the loops did not turn when last asked
	deaf    bool   // the manager did not take the last report
}

func (n *notifier) run(ctx context.Context) {
	defer func() { n.note(n.manager.Stopping()) }()
	every := reportEvery
	if w := n.manager.Watchdog(); w > 0 {
		every = min(every, w/2)
	}
	if !n.awaitStart(ctx, every) {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.look(ctx, every)
		}
	}
}

// awaitStart waits until the node is at work; false: ctx has ended. The process that waits for its identity is alive.
func (n *notifier) awaitStart(ctx context.Context, every time.Duration) bool {
	patience := time.After(startsFor)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-n.started:
			n.status = n.summary()
			n.note(n.manager.Ready(n.status))
			return true
		case <-patience:
			n.note(n.manager.Ready("starting: the log says what the node waits for"))
		case <-tick.C:
			n.sign()
		}
	}
}

// look sends systemd's watchdog its sign of life (WATCHDOG=1) if the agent's loops turn, and renews the status line.
func (n *notifier) look(ctx context.Context, within time.Duration) {
	asked, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := n.alive(asked); err != nil {
		if ctx.Err() == nil && !n.still {
			n.log.Error("the agent gives its service manager no sign of life: it ends it if this lasts", "err", err, "watchdog", n.manager.Watchdog())
		}
		n.still = true
		return
	}
	n.still = false
	n.sign()
	if now := n.summary(); now != n.status {
		n.status = now
		n.note(n.manager.Status(now))
	}
}

// sign is the sign of life, where a watchdog waits for one.
func (n *notifier) sign() {
	if n.manager.Watchdog() > 0 {
		n.note(n.manager.Alive())
	}
}

// note logs that the service manager takes no reports: once, until it takes one again.
func (n *notifier) note(err error) {
	if err != nil && !n.deaf {
		n.log.Warn("the service manager takes no reports of the agent", "err", err)
	}
	n.deaf = err != nil
}
