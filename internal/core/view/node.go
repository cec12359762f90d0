package view

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Node is what the console shows about the node itself.
type Node struct {
	Name       string      `json:"name"`
	Standalone bool        `json:"standalone"`
	Version    string      `json:"version"`
	Runtime    string      `json:"runtime"`
	OS         string      `json:"os,omitempty"`
	Kernel     string      `json:"kernel,omitempty"`
	Arch       string      `json:"arch,omitempty"`
	Addresses  []string    `json:"addresses,omitempty"`
	Conditions []Condition `json:"conditions"`
	Resources  []Resource  `json:"resources"`
	Pressure   []Threshold `json:"pressure,omitempty"`
	// Lease is when the node last renewed its lease in the API server. It is zero if that is not known, or if the node has no API
	// server.
	Lease time.Time `json:"lease,omitzero"`
}

// Resource is one resource of the node. CPU is in thousandths of a core; all other resources are in the base unit of their Quantity,
// such as bytes.
type Resource struct {
	Name        string `json:"name"`
	Capacity    int64  `json:"capacity"`
	Allocatable int64  `json:"allocatable"`
	Requested   int64  `json:"requested"`      // the sum of the requests of all pods that have not ended
	Used        int64  `json:"used,omitempty"` // the measured usage; 0: not measured
}

// Threshold is an eviction threshold with the newest reading of its signal.
type Threshold struct {
	Signal    string `json:"signal"`
	Limit     int64  `json:"limit"` // in the unit of the signal
	Available int64  `json:"available"`
	Capacity  int64  `json:"capacity"`
	Soft      bool   `json:"soft,omitempty"`
	Met       bool   `json:"met"`
}

// Measured holds the measurements of a node.
type Measured struct {
	Signals    pressure.Signals
	Thresholds []pressure.Threshold
	CPU        int64 // thousandths of a core in use; 0: not known
	Memory     int64 // bytes of the working set; 0: not known
	Lease      time.Time
}

// NodeOf returns the view of the node. n is the Node that the agent registers, pods are all pods of the node.
func NodeOf(n *v1.Node, pods []*v1.Pod, m *Measured) Node {
	i := &n.Status.NodeInfo
	out := Node{
		Name: n.Name, Version: text(i.KubeletVersion), Runtime: text(i.ContainerRuntimeVersion), OS: text(i.OSImage), Kernel: text(i.KernelVersion), Arch: i.Architecture,
		Lease: m.Lease, Conditions: []Condition{}, Pressure: thresholds(m), Resources: resources(n, pods, m),
	}
	for _, a := range n.Status.Addresses[:min(len(n.Status.Addresses), 8)] {
		out.Addresses = append(out.Addresses, text(a.Address))
	}
	for _, c := range n.Status.Conditions[:min(len(n.Status.Conditions), maxEntries)] {
		out.Conditions = append(out.Conditions, Condition{string(c.Type), string(c.Status), c.Reason, text(c.Message), c.LastTransitionTime.Time})
	}
	return out
}

func thresholds(m *Measured) (out []Threshold) {
	for _, t := range m.Thresholds {
		o, ok := m.Signals.Read(t.Signal)
		if !ok {
			continue
		}
		limit := t.Value.Of(o.Capacity)
		out = append(out, Threshold{
			Signal: string(t.Signal), Limit: limit, Available: o.Available, Capacity: o.Capacity, Soft: t.Grace > 0, Met: o.Available < limit,
		})
	}
	return out
}

// resources returns cpu, memory, pods and ephemeral storage first, then all others by name.
func resources(n *v1.Node, pods []*v1.Pod, m *Measured) (out []Resource) {
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage}
	var others []v1.ResourceName
	for name, q := range n.Status.Capacity {
		if !slices.Contains(names, name) && !q.IsZero() {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	requested := map[v1.ResourceName]int64{}
	for _, p := range pods {
		if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		requested[v1.ResourcePods]++
		for name, q := range admit.Requests(p) {
			requested[name] += amount(name, q)
		}
	}
	for _, name := range append(names, others[:min(len(others), maxEntries)]...) {
		c, ok := n.Status.Capacity[name]
		if !ok {
			continue
		}
		r := Resource{Name: string(name), Capacity: amount(name, c), Allocatable: amount(name, n.Status.Allocatable[name]), Requested: requested[name]}
		switch name {
		case v1.ResourceCPU:
			r.Used = m.CPU
		case v1.ResourceMemory:
			r.Used = m.Memory
		}
		out = append(out, r)
	}
	return out
}

// amount converts a quantity to the unit that Resource uses.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
