package fleet

import "time"

// readiness stores which Nodes the API has, and which of them are Ready. The fleet keeps the map.
func (f *Fleet) readiness(ready map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.known
	f.known, f.purge = ready, true
	for name, n := range f.nodes {
		f.setReady(n, ready[name])
		_, had := was[name]
		if _, has := ready[name]; had && !has {
			f.lost(n)
		}
	}
	f.look()
}

// changed stores that a Node has changed: whether it is Ready now, or is gone.
func (f *Fleet) changed(name string, ready, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if gone {
		delete(f.known, name)
	} else {
		f.known[name] = ready
		f.purge = f.purge || !f.roster.names[name]
	}
	n := f.nodes[name]
	if n != nil {
		f.setReady(n, ready && !gone)
		if gone {
			f.lost(n)
		}
	}
	if n != nil || f.purge {
		f.look()
	}
}

// lost lets a node register again whose Node somebody has deleted, although the fleet should have it. An agent registers only when it starts, so
// lost ends the agent, and the next one starts after restartWait, which bounds the rate if somebody deletes the Node again and again. The
// containers run on. The caller holds the lock.
func (f *Fleet) lost(n *node) {
	if n.leaves || n.down || n.stop == nil || !f.held[n.slice] || !f.roster.names[n.name] {
		return
	}
	f.cfg.Log.Warn("the Node of a node was deleted; its agent starts again and registers it", "node", n.name, "after", restartWait)
	n.next = time.Now().Add(restartWait)
	n.stop()
}

// leased is called when an agent of a node has renewed the node's lease for the first time. A Node that was Ready before, because another
// process ran it, may not change when its agent joins; so this is the end of its join.
func (f *Fleet) leased(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[n.name] {
		f.setReady(n, true)
		f.look()
	}
}

// setReady stores whether a node is Ready, and ends its join when it first becomes Ready. The caller holds the lock.
func (f *Fleet) setReady(n *node, ready bool) {
	n.ready = ready
	if ready && f.joining[n] {
		n.joined = true
		took := time.Since(n.began)
		f.joins.Ended++
		f.joins.Took += took
		f.joins.Waited += min(took, n.link.waits())
		f.pace.ended(took)
		f.endJoin(n)
	}
}

// endJoin stops counting n as a node that joins, so that another node can join. The caller holds the lock.
func (f *Fleet) endJoin(n *node) { delete(f.joining, n) }

// haveJoined reports whether all nodes that the fleet should have had joined at one moment since the start: each was Ready once, or has not become
// Ready within joinPatience. Of a shared fleet these are the nodes of this process, after each process has got its share. It is false for a
// fleet without nodes.
func (f *Fleet) haveJoined() bool {
	divided := f.shard == nil || f.shard.isDivided() // before the fleet's lock
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.joined || !divided {
		return f.joined
	}
	want, have := 0, 0
	for slice, held := range f.held {
		if held {
			want += len(f.roster.slices[slice])
		}
	}
	for _, n := range f.nodes {
		if !n.leaves && !f.joining[n] {
			have++
		}
	}
	f.joined = want > 0 && have == want
	return f.joined
}

// has reports whether a node of this name runs here, and whether the fleet has such a node, here or in another process, or will soon have it.
func (f *Fleet) has(name string) (here, member bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	here = f.nodes[name] != nil
	return here, here || f.roster.names[name]
}

// here returns the names of the nodes that run here; nil: all nodes of the fleet do.
func (f *Fleet) here() map[string]bool {
	if f.shard == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]bool, len(f.nodes))
	for name := range f.nodes {
		out[name] = true
	}
	return out
}
