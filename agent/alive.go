package agent

import (
	"context"
	"fmt"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// Alive asks the node's loops whether they turn, and waits for their answers until ctx ends: nil where all do. It is for a
// watchdog, which restarts the agent: it says nothing of the runtime or the API server, which a restart does not mend. It may be
// called once Deps.Started has been, by several goroutines at once.
func (a *Agent) Alive(ctx context.Context) error {
	for _, turns := range []func(context.Context) error{a.pleg.Turns, a.loop.Turns} {
		if err := turns(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Summary returns the node in one line for people: its name, whether it is ready, and how many pods are bound to it. It may be called
// once Deps.Started has been.
func (a *Agent) Summary() string {
	ready := "" // a standalone node has nobody who asks
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
