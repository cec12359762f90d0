package launch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/edge/sdnotify"
)

const (
	// startsFor is how long a service manager waits for a start. After that, the agent reports that it is ready although it is
	// still starting, because a person may have to approve a certificate, and a machine's boot must not wait for that.
	startsFor = 20 * time.Second
	// reportEvery is how often the status line is renewed.
	reportEvery = 10 * time.Second
)

// service has the functions from which the reports to the service manager are made.
type service struct {
	started <-chan struct{} // closed when the node is at work; alive and summary are not called before that
	alive   func(context.Context) error
	summary func() string
}

// runSupervised runs the node and reports to the service manager: that the node is ready, its status line, that it stops, and a
// sign of life in each half of the watchdog's time if the node's loops work.
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

// notifier reports to the service manager while the node runs.
type notifier struct {
	service
	manager *sdnotify.Manager
	log     *slog.Logger
	status  string // the last status line
	still   bool   // the loops did not answer when last asked
	deaf    bool   // the manager did not receive the last report
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

// awaitStart waits until the node is at work; false: ctx has ended. It sends signs of life, because a process that waits for its
// identity is alive.
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

// look sends the sign of life (WATCHDOG=1) to systemd if the agent's loops work, and renews the status line.
func (n *notifier) look(ctx context.Context, within time.Duration) {
	asked, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := n.alive(asked); err != nil {
		if ctx.Err() == nil && !n.still {
			n.log.Error("the agent sends no sign of life to its service manager, which ends the agent if this continues", "err", err, "watchdog", n.manager.Watchdog())
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

// sign sends the sign of life if there is a watchdog.
func (n *notifier) sign() {
	if n.manager.Watchdog() > 0 {
		n.note(n.manager.Alive())
	}
}

// note logs once that the service manager receives no reports, and again only after it has received one.
func (n *notifier) note(err error) {
	if err != nil && !n.deaf {
		n.log.Warn("the service manager takes no reports of the agent", "err", err)
	}
	n.deaf = err != nil
}
