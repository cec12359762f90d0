package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// Alive checks that none of the node's loops is stuck: it returns nil if all loops answer before ctx ends. A watchdog calls
// Alive and restarts the agent after an error. Alive does not check the runtime or the API server, because a restart of the
// agent repairs neither. Several goroutines may call it at once, but only after Deps.Started was called.
func (a *Agent) Alive(ctx context.Context) error {
	for _, turns := range []func(context.Context) error{a.pleg.Turns, a.loop.Turns} {
		if err := turns(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Summary returns the node in one line for people: its name, whether it is ready, and how many pods are bound to it. It must not be
// called before Deps.Started was called.
func (a *Agent) Summary() string {
	ready := "" // a standalone node reports no readiness
	if a.heartbeat != nil {
		ready = ", not known to the API server yet"
		if c := a.opened.client; c != nil && c.Awaited() {
			ready = ", waits for its client certificate"
		}
		if n := a.heartbeat.Node(); n != nil {
			ready = ", not ready"
			if nodestatus.Ready(n) {
				ready = ", ready"
			}
		}
	}
	if since := a.offline.status().Since; since != nil {
		ready = ", offline: pods as last known at " + since.Local().Format(time.RFC3339)
	}
	return fmt.Sprintf("node %s%s, pods: %d", a.cfg.NodeName, ready, len(a.pods.List()))
}
