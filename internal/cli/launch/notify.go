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
	// still starting, because a disk or a runtime may take long to answer, and a machine's boot must not wait for that.
	startsFor = 20 * time.Second
	// reportEvery is how often the status line is renewed.
	reportEvery = 10 * time.Second
)

// service has the functions that say what to report to the service manager.
type service struct {
	started <-chan struct{} // closed when the node has started; alive and summary may be called only then
	alive   func(context.Context) error
	summary func() string
}

// runSupervised runs the node and reports to the service manager. It reports that the node is ready, the status line, and
// that the node stops. If there is a watchdog, it also reports at least twice in the watchdog's time that the process is
// alive, while the node's loops answer.
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
	still   bool   // the loops did not answer the last call of alive in time
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

// awaitStart waits until the node has started; false: ctx has ended before. Meanwhile it tells the watchdog that the process
// is alive, because a process that waits, for example for its runtime, is not stuck.
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

// look tells the watchdog that the process is alive (WATCHDOG=1) if the agent's loops answer before the time within has passed. It then
// sends the status line if the line has changed.
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

// sign tells the watchdog that the process is alive, if there is a watchdog.
func (n *notifier) sign() {
	if n.manager.Watchdog() > 0 {
		n.note(n.manager.Alive())
	}
}

// note logs that the service manager receives no reports. It logs this once, and again only after a report has arrived in
// between.
func (n *notifier) note(err error) {
	if err != nil && !n.deaf {
		n.log.Warn("the service manager takes no reports of the agent", "err", err)
	}
	n.deaf = err != nil
}
