package fleet

import (
	"context"
	"os"
)

// removeExtra begins to end the nodes that should not run here: those that the fleet should not have any more are removed from the cluster,
// and those of slices that this process does not hold are left to other processes. The caller holds the lock.
func (f *Fleet) removeExtra() {
	var extra, moved []*node
	for _, n := range f.nodes {
		switch {
		case n.leaves:
			continue
		case !f.held[n.slice]:
			moved = append(moved, n)
		case !f.roster.names[n.name]:
			extra = append(extra, n)
		default:
			continue
		}
		n.leaves = true
		f.endJoin(n)
	}
	if len(moved) > 0 {
		f.leaving.Go(func() { f.drop(moved) })
	}
	if len(extra) > 0 {
		f.leaving.Go(func() { f.remove(extra) })
	}
	if names := f.surplus(); len(names) > 0 {
		f.leaving.Go(func() { f.removeSurplus(names) })
	}
}

// finish ends the agents and machines of nodes, and returns when they have ended.
func finish(nodes []*node) {
	for _, n := range nodes {
		n.end()
	}
	limited(nodes, leavers, func(n *node) {
		n.join()
		n.close()
	})
}

// drop ends nodes and leaves their Nodes in the cluster, to the process that holds their slice next.
func (f *Fleet) drop(nodes []*node) {
	finish(nodes)
	f.forget(nodes)
	f.shard.wakeUp()
}

// remove ends nodes, and removes them from the cluster.
func (f *Fleet) remove(nodes []*node) {
	finish(nodes)
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.name] = true
	}
	f.cleanNodes(names)
	f.mu.Lock()
	f.joins.Left += len(nodes)
	f.mu.Unlock()
	f.forget(nodes)
}

// cleanNodes removes Nodes from the cluster, with their leases and pods.
func (f *Fleet) cleanNodes(names map[string]bool) {
	r := &removal{api: f.api, selector: f.selector(), only: names, bounded: true}
	if err := r.run(context.Background()); err != nil {
		f.cfg.Log.Error("nodes that left the fleet are still in the cluster; they are removed at its end", "err", err)
	}
}

// forget removes nodes that have ended from the fleet, so that nodes of the same name can start.
func (f *Fleet) forget(nodes []*node) {
	f.mu.Lock()
	for _, n := range nodes {
		delete(f.nodes, n.name)
		if f.serving != nil {
			f.serving.forget(n.name)
		}
		if f.cfg.Dir != "" {
			_ = os.RemoveAll(f.cfg.logs(n.name)) // an error is ignored: whoever created Dir removes what is left
		}
	}
	f.mu.Unlock()
	f.look()
}

// surplus returns the Nodes in the API that the fleet should not have, and that no process runs: for example, because an earlier process of the
// fleet had more nodes, or because the number was reduced while the process that ran them was dead. Each process of a shared fleet looks after
// those of its slices. The caller holds the lock.
func (f *Fleet) surplus() map[string]bool {
	if !f.purge {
		return nil
	}
	f.purge = false
	names := map[string]bool{}
	for name := range f.known {
		if f.held[sliceOf(name, len(f.held))] && !f.roster.names[name] && f.nodes[name] == nil && !f.purging[name] {
			names[name], f.purging[name] = true, true
		}
	}
	return names
}

// removeSurplus removes Nodes that no process runs from the cluster.
func (f *Fleet) removeSurplus(names map[string]bool) {
	f.cfg.Log.Info("removing nodes that the fleet should not have", "nodes", len(names))
	f.cleanNodes(names)
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range names {
		delete(f.purging, name)
	}
	f.look()
	if f.shard != nil {
		f.shard.wakeUp()
	}
}

// setHeld stores whether this process runs the nodes of a slice. Nodes start and end in the background.
func (f *Fleet) setHeld(slice int, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[slice], f.purge = held, true
	f.look()
}

// busy returns the slices of which a node runs, has not ended yet, or is being removed from the cluster.
func (f *Fleet) busy() map[int]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[int]bool{}
	for _, n := range f.nodes {
		out[n.slice] = true
	}
	for name := range f.purging {
		out[sliceOf(name, len(f.held))] = true
	}
	return out
}

// sliceSizes returns how many nodes each slice should have.
func (f *Fleet) sliceSizes() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]int, len(f.held))
	for i := range out {
		out[i] = len(f.roster.slices[i])
	}
	return out
}
