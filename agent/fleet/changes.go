package fleet

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change is a change of a node or of a pod of the fleet, as the API server has it.
type Change struct {
	At time.Duration `json:"at"` // since Run began, in nanoseconds
	// Node is the node that has changed, or on which the pod is.
	Node string `json:"node"`
	// Pod is the pod that has changed, as namespace/name; "": it is a change of the node. Workload is what pods have in common that one
	// controller has created, as namespace/prefix; for a pod without a controller it is equal to Pod.
	Pod      string `json:"pod,omitempty"`
	Workload string `json:"workload,omitempty"`
	// State is Ready, NotReady or Gone for a node. For a pod it is its phase or Gone, with the reason of its status in brackets.
	State string `json:"state"`
	// Ready and Restarts are of a pod: its condition Ready, and the sum of the restarts of its containers.
	Ready    bool  `json:"ready,omitempty"`
	Restarts int32 `json:"restarts,omitempty"`
}

// These are values of Change.State.
const (
	StateReady    = "Ready"
	StateNotReady = "NotReady"
	StateGone     = "Gone"
)

// changes passes the changes of nodes and pods on to Config.Changed. A nil *changes does nothing. The watch of the nodes and the watch of the
// pods use different maps, so that each method is called by one goroutine.
type changes struct {
	to    func(Change)
	since func() time.Duration
	nodes map[string]bool
	pods  map[types.UID]Change
}

func newChanges(to func(Change), since func() time.Duration) *changes {
	if to == nil {
		return nil
	}
	return &changes{to: to, since: since, nodes: map[string]bool{}, pods: map[types.UID]Change{}}
}

// node notes whether a node is Ready. here is false if the cluster no longer has the node.
func (c *changes) node(name string, ready, here bool) {
	if c == nil {
		return
	}
	was, known := c.nodes[name]
	state := StateNotReady
	switch {
	case !here && !known, known && was == ready && here:
		return
	case !here:
		delete(c.nodes, name)
		state = StateGone
	default:
		c.nodes[name] = ready
		if ready {
			state = StateReady
		}
	}
	c.to(Change{At: c.since(), Node: name, State: state})
}

// keepNodes notes that the cluster has no other nodes than these.
func (c *changes) keepNodes(here map[string]bool) {
	if c == nil {
		return
	}
	for name := range c.nodes {
		if _, ok := here[name]; !ok {
			c.node(name, false, false)
		}
	}
}

// pod notes the state of a pod on a node of the fleet.
func (c *changes) pod(p *v1.Pod, s *podState) {
	if c == nil {
		return
	}
	now := Change{Node: s.node, Pod: p.Namespace + "/" + p.Name, Workload: p.Namespace + "/" + workloadOf(p), State: string(s.phase), Ready: s.ready}
	if reason := p.Status.Reason; reason != "" {
		now.State += " (" + strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "") + ")"
	}
	for i := range p.Status.ContainerStatuses {
		now.Restarts += p.Status.ContainerStatuses[i].RestartCount
	}
	if was, known := c.pods[p.UID]; known && was == now {
		return
	}
	c.pods[p.UID] = now
	now.At = c.since()
	c.to(now)
}

// podGone notes that the cluster no longer has a pod.
func (c *changes) podGone(uid types.UID) {
	if c == nil {
		return
	}
	was, known := c.pods[uid]
	if !known {
		return
	}
	delete(c.pods, uid)
	c.to(Change{At: c.since(), Node: was.Node, Pod: was.Pod, Workload: was.Workload, State: StateGone})
}

// keepPods notes that the cluster has no other pods than these.
func (c *changes) keepPods(here map[types.UID]bool) {
	if c == nil {
		return
	}
	for uid := range c.pods {
		if !here[uid] {
			c.podGone(uid)
		}
	}
}

// workloadOf returns the part of a pod's name that it shares with the other pods of its controller, which also does not differ between two
// runs: the prefix that the controller gave, without the hash of a ReplicaSet's template.
func workloadOf(p *v1.Pod) string {
	if made := p.Labels[LabelFleet] + "-pod-"; p.GenerateName == "" && strings.HasPrefix(p.Name, made) {
		return made + "*" // the fleet itself has made the pod: see Fleet.pod
	}
	if p.GenerateName == "" {
		return p.Name
	}
	prefix := p.GenerateName
	if hash := p.Labels["pod-template-hash"]; hash != "" {
		if n := len(prefix) - len(hash) - 1; n > 0 && prefix[n:] == hash+"-" {
			prefix = prefix[:n]
		}
	}
	return prefix + "*"
}
