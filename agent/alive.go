package agent

import (
	"context"
	"fmt"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// Alive asks each of the node's loops whether it still turns, and waits for the answers until ctx ends. It returns nil if all do.
// It is for a watchdog that restarts the agent, so it does not check the runtime or the API server: a restart of the agent mends
// neither. It may be called by several goroutines at once, from the call of Deps.Started on.
func (a *Agent) Alive(ctx context.Context) error {
	for _, turns := range []func(context.Context) error{a.pleg.Turns, a.loop.Turns} {
		if err := turns(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Summary returns the node in one line for people: its name, whether it is ready, and how many pods are bound to it. It may be
// called from the call of Deps.Started on.
func (a *Agent) Summary() string {
	ready := "" // a standalone node reports no readiness
	if a.heartbeat != nil {
		ready = ", not known to the API server yet"
		if n := a.heartbeat.Node(); n != nil {
			ready = ", not ready"
			if nodestatus.Ready(n) {
				ready = ", ready"
			}
		}
	}
	return fmt.Sprintf("node %s%s, pods: %d", a.cfg.NodeName, ready, len(a.pods.List()))
}
