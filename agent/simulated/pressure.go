package simulated

import (
	"errors"

	"github.com/wherry-node/wherry/agent"
)

// Pressure makes processes outside the pods use resources. Each field is the minimum use of one resource, as a percentage of the
// machine's size; 0: no pressure on that resource.
type Pressure struct {
	Memory    float64 `json:"memory"`
	Disk      float64 `json:"disk"`
	Processes float64 `json:"processes"`
}

// Check returns an error if the Pressure is not valid, a *FieldError if a single field is wrong.
func (p *Pressure) Check() error {
	for _, r := range []struct {
		field   string
		percent float64
	}{{"memory", p.Memory}, {"disk", p.Disk}, {"processes", p.Processes}} {
		if !(r.percent >= 0 && r.percent <= 100) { // NaN is no part of anything
			return wrong(r.field, "use 0 to 100 percent")
		}
	}
	if *p == (Pressure{}) {
		return errors.New("set memory, disk or processes, in percent")
	}
	return nil
}

// pressures are all present pressures of a machine. Its methods may be called concurrently.
type pressures struct {
	whole agent.Used // the size of the machine

	lasting[Pressure]
}

// on returns how much of each resource is used under the active pressures: the larger of used and of the largest percentage that a
// pressure demands.
func (p *pressures) on(used agent.Used) agent.Used {
	part := func(whole int64, percent float64) int64 { return int64(float64(whole) * percent / 100) }
	for _, one := range p.now() {
		used.Memory = max(used.Memory, part(p.whole.Memory, one.Memory))
		used.Storage = max(used.Storage, part(p.whole.Storage, one.Disk))
		used.Processes = max(used.Processes, part(p.whole.Processes, one.Processes))
	}
	return used
}

// Press makes processes outside the pods use resources until remove is called. remove may be called more than once.
func (n *Node) Press(p Pressure) (remove func(), err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	return n.pressures.add(p), nil
}

// Container is a running container of a Node.
type Container struct {
	Namespace, Pod, Name, Image, ID string
}

// Running returns the running containers, sorted by namespace, pod and name.
func (n *Node) Running() []Container {
	var out []Container
	for _, c := range n.runtime.Running() {
		out = append(out, Container{Namespace: c.PodNamespace, Pod: c.PodName, Name: c.Name, Image: c.Image, ID: c.ID})
	}
	return out
}

// ExitOOM ends the process of a running container as if the kernel had killed it for lack of memory: exit code 137, reason OOMKilled.
func (n *Node) ExitOOM(id, message string) { n.runtime.Exit(id, 137, "OOMKilled", message) }

// Exit ends the process of a running container with this exit code. If reason is "", the reason is Error or Completed, by the code.
func (n *Node) Exit(id string, code int32, reason, message string) {
	n.runtime.Exit(id, code, reason, message)
}
