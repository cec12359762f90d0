package fleetctl

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
)

// removalEvery is the interval of lines about the removal of a fleet from its cluster.
const removalEvery = 10 * time.Second

// tellRemoval prints how far the removal of the fleet is, from the end of ctx until over is closed. removal says how much is removed, and how much there is.
func (p *progress) tellRemoval(ctx context.Context, over <-chan struct{}, removal func() (done, found fleet.Removed)) {
	select {
	case <-ctx.Done():
	case <-over:
		return
	}
	tick := time.NewTicker(removalEvery)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			p.line("%s", removedText(removal()))
		}
	}
}

func removedText(done, found fleet.Removed) string {
	switch {
	case found == fleet.Removed{}:
		return "the nodes end"
	case found.Pods == 0: // they are found after the Nodes are removed
		return fmt.Sprintf("removed %d of %d nodes from the cluster", done.Nodes, found.Nodes)
	}
	return fmt.Sprintf("removed %d of %d nodes and %d of %d pods from the cluster", done.Nodes, found.Nodes, done.Pods, found.Pods)
}
