package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// Status is the state of a fleet.
type Status struct {
	Name  string `json:"name"`
	Nodes Nodes  `json:"nodes"`
	Pods  Pods   `json:"pods"`
	// Leases says how late the nodes' leases are renewed.
	Leases   Lateness `json:"leases"`
	Requests Requests `json:"requests"`
	Joins    Joins    `json:"joins"`
	// JoinWindow is how many nodes may join at the same time now.
	JoinWindow int `json:"joinWindow"`
	// Began is when the fleet began, and Running how long it runs.
	Began   time.Time     `json:"began,omitzero"`
	Running time.Duration `json:"running"`
	// Shard is nil if no other process shares the fleet. Otherwise Nodes, Pods and Groups are of the nodes that this process runs.
	Shard *ShardStatus `json:"shard,omitempty"`
	// Groups has the number of nodes that each group should have.
	Groups []GroupStatus `json:"groups"`
	// Faults are the faults that nodes have now, the newest first, at most 50.
	Faults []FaultStatus `json:"faults,omitempty"`
	// Scenarios are the scenarios that play and the last ones that have ended, the newest first, at most 16.
	Scenarios []ScenarioStatus `json:"scenarios,omitempty"`
}

// Joins counts the nodes that have joined and left since the start.
type Joins struct {
	// Ended is how many nodes were Ready for the first time.
	Ended int `json:"ended"`
	// Took is how long their joins took, and Waited for how much of that they waited for an answer of the API server. Both are sums over all
	// nodes: Took/Ended is the mean, Waited/Took the API server's share.
	Took   time.Duration `json:"took"`
	Waited time.Duration `json:"waited"`
	// Left is how many nodes were removed after a call of Scale.
	Left int `json:"left"`
}

// FaultStatus is a fault that nodes have now.
type FaultStatus struct {
	Kind FaultKind `json:"kind"`
	// Text describes the fault, for example how the runtime misbehaves; it may be empty.
	Text  string `json:"text,omitempty"`
	Nodes int    `json:"nodes"`
	// Since is when the fault began, and Until when it ends; zero: when somebody calls Heal.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// GroupStatus is the state of one group.
type GroupStatus struct {
	Name string `json:"name"`
	Nodes
	Pods int `json:"pods"` // bound to the nodes of the group
}

// Nodes counts the nodes of a fleet or a group.
type Nodes struct {
	Want    int `json:"want"`
	Present int `json:"present"` // nodes that have begun to join and are not removed yet
	Ready   int `json:"ready"`   // Ready in the API
	// Up is how many are Ready and have neither crashed nor are partitioned. Just after a crash the API still says Ready.
	Up          int `json:"up"`
	Joining     int `json:"joining"`
	Leaving     int `json:"leaving"`
	Crashed     int `json:"crashed"`
	Partitioned int `json:"partitioned"`
	Failed      int `json:"failed"` // nodes whose agent failed, which the fleet starts again
}

// NotReady returns how many nodes had joined and are not Ready now, without a crash, a failure or a partition.
func (n *Nodes) NotReady() int {
	return n.Present - n.Up - n.Joining - n.Leaving - n.Crashed - n.Partitioned - n.Failed
}

// NodeStatus is the state of one node.
type NodeStatus struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	// State is joining, ready, notReady, crashed, partitioned, failed or leaving.
	State  string `json:"state"`
	Pods   int    `json:"pods"`
	Ready  int    `json:"podsReady"`
	Reason string `json:"reason,omitempty"` // why the agent failed, or what it waits for
	// Faults are the kinds of the faults that the node has now.
	Faults []FaultKind `json:"faults,omitempty"`
	// Overdue is for how long the renewal of the node's lease has been due; 0: it is not due, or a fault prevents it.
	Overdue time.Duration `json:"overdue,omitempty"`
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
	pods, byNode := f.pods.count()
	s := Status{Name: f.cfg.Name, Pods: pods, Leases: f.wheel.lateness(), Requests: f.count.count()}
	if f.shard != nil {
		s.Shard = f.shard.status(f.sliceSizes())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.began.IsZero() {
		s.Began, s.Running = f.began, time.Since(f.began)
	}
	s.Joins, s.Faults, s.Scenarios = f.joins, f.underWay(), f.playStatus()
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
		g := byName[n.group.Name]
		n.countInto(&g.Nodes)
		g.Pods += byNode[n.name].all
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
	case "ready":
		c.Up++
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
		out = append(out, n.status(pods[n.name]))
	}
	inorder.Sort(out, func(a, b NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// status returns the state of the node, on which there are the given pods. The caller holds the lock.
func (n *node) status(pods nodePods) NodeStatus {
	s := NodeStatus{Name: n.name, Group: n.group.Name, State: n.state(), Pods: pods.all, Ready: pods.ready, Reason: n.reason(), Overdue: n.link.overdue()}
	for _, i := range slices.Sorted(maps.Keys(n.faults)) {
		s.Faults = append(s.Faults, n.faults[i].kind)
	}
	return s
}

// Attention returns the nodes that need attention, the worst first, at most limit of them, and how many there are in all. A node needs
// attention if its agent failed, it has crashed, is partitioned or not Ready, has not joined after two minutes, has a fault, or if the renewal of
// its lease is more than two seconds overdue.
func (f *Fleet) Attention(limit int) (nodes []NodeStatus, all int) {
	_, pods := f.pods.count()
	f.mu.Lock()
	defer f.mu.Unlock()
	type ranked struct {
		node *node
		rank int
	}
	var found []ranked
	for _, n := range f.nodes {
		if rank := n.trouble(); rank > 0 {
			found = append(found, ranked{n, rank})
		}
	}
	inorder.Sort(found, func(a, b ranked) int {
		return cmp.Or(a.rank-b.rank, a.node.index-b.node.index, strings.Compare(a.node.name, b.node.name))
	})
	for _, r := range found[:min(len(found), max(0, limit))] {
		nodes = append(nodes, r.node.status(pods[r.node.name]))
	}
	return nodes, len(found)
}

// trouble says how much attention the node needs: 1 is the worst, 0 none. The caller holds the lock.
func (n *node) trouble() int {
	switch state := n.state(); {
	case state == "leaving":
		return 0
	case state == "failed":
		return 1
	case state == "crashed":
		return 2
	case state == "partitioned":
		return 3
	case state == "notReady":
		return 4
	case n.link.overdue() > LateForJoins:
		return 5
	case len(n.faults) > 0:
		return 6
	case state == "joining" && time.Since(n.began) > joinPatience:
		return 7
	}
	return 0
}
