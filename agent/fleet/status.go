package fleet

import (
	"slices"
	"strings"
	"time"
)

// Status is the state of a fleet.
type Status struct {
	Name  string `json:"name"`
	Nodes Nodes  `json:"nodes"`
	Pods  Pods   `json:"pods"`
	// Leases says how late the nodes' leases are renewed.
	Leases   Lateness `json:"leases"`
	Requests Requests `json:"requests"`
	// JoinWindow is how many nodes may join at the same time now.
	JoinWindow int `json:"joinWindow"`
	// Running is how long the fleet runs.
	Running time.Duration `json:"running"`
	// Shard is nil if no other process shares the fleet. Otherwise Nodes, Pods and Groups are of the nodes that this process runs.
	Shard *ShardStatus `json:"shard,omitempty"`
	// Groups has the number of nodes that each group should have.
	Groups []GroupStatus `json:"groups"`
}

// GroupStatus is the state of one group.
type GroupStatus struct {
	Name string `json:"name"`
	Nodes
}

// Nodes counts the nodes of a fleet or a group.
type Nodes struct {
	Want        int `json:"want"`
	Present     int `json:"present"` // nodes that have begun to join and are not removed yet
	Ready       int `json:"ready"`   // Ready in the API
	Joining     int `json:"joining"`
	Leaving     int `json:"leaving"`
	Crashed     int `json:"crashed"`
	Partitioned int `json:"partitioned"`
	Failed      int `json:"failed"` // nodes whose agent failed, which the fleet starts again
}

// NodeStatus is the state of one node.
type NodeStatus struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	// State is joining, ready, notReady, crashed, partitioned, failed or leaving.
	State  string `json:"state"`
	Pods   int    `json:"pods"`
	Reason string `json:"reason,omitempty"` // why the agent failed
}

// Settled reports whether all nodes that the fleet should have are Ready, and no others are left. If several processes share the fleet, it
// reports that of the nodes of this process, and whether each process holds the slices that it should hold.
func (s *Status) Settled() bool {
	n := &s.Nodes
	if s.Shard != nil && !s.Shard.Settled {
		return false
	}
	return n.Ready == n.Want && n.Present == n.Want && n.Leaving == 0
}

// Status returns the present state.
func (f *Fleet) Status() Status {
	pods, _ := f.pods.count()
	s := Status{Name: f.cfg.Name, Pods: pods, Leases: f.wheel.lateness(), Requests: f.count.count()}
	if f.shard != nil {
		s.Shard = f.shard.status(f.sliceSizes())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.began.IsZero() {
		s.Running = time.Since(f.began)
	}
	s.JoinWindow = int(f.pace.window)
	byName := map[string]*GroupStatus{}
	s.Groups = make([]GroupStatus, len(f.cfg.Groups))
	for i := range f.cfg.Groups {
		g := &s.Groups[i]
		g.Name = f.cfg.Groups[i].Name
		byName[g.Name] = g
	}
	for slice, held := range f.held {
		if !held {
			continue
		}
		for i, n := range f.roster.counts[slice] {
			s.Groups[i].Want += n
			s.Nodes.Want += n
		}
	}
	for _, n := range f.nodes {
		n.countInto(&s.Nodes)
		n.countInto(&byName[n.group.Name].Nodes)
	}
	return s
}

// countInto adds the node to the counters of c that fit its state. The caller holds the lock.
func (n *node) countInto(c *Nodes) {
	c.Present++
	if n.ready && !n.leaves {
		c.Ready++
	}
	switch n.state() {
	case "leaving":
		c.Leaving++
	case "crashed":
		c.Crashed++
	case "failed":
		c.Failed++
	case "partitioned":
		c.Partitioned++
	case "joining":
		c.Joining++
	}
}

// state returns the node's state. The caller holds the lock.
func (n *node) state() string {
	switch {
	case n.leaves:
		return "leaving"
	case n.down:
		return "crashed"
	case n.err != nil:
		return "failed"
	case n.link.partitioned():
		return "partitioned"
	case n.ready:
		return "ready"
	case !n.joined:
		return "joining"
	}
	return "notReady"
}

// Nodes returns the state of each node, sorted by name.
func (f *Fleet) Nodes() []NodeStatus {
	_, pods := f.pods.count()
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]NodeStatus, 0, len(f.nodes))
	for _, n := range f.nodes {
		s := NodeStatus{Name: n.name, Group: n.group.Name, State: n.state(), Pods: pods[n.name].all}
		if n.err != nil {
			s.Reason = n.err.Error()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}
