package main

import (
	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/config"
	"github.com/wherry-node/wherry/internal/nodefacts"
	"github.com/wherry-node/wherry/internal/simcri"
)

// openSimulated gives the node a runtime in memory and a machine that does not exist. Its address is one of this
// host's where --node-ip says so, so that the API server reaches the node's own API.
func (n *node) openSimulated(s *config.SimulatedNode) error {
	r := simcri.New(simcri.Config{Log: n.log})
	n.closes = append(n.closes, r.Close)
	shape := agent.Shape{CPUs: int(s.CPU.Value()), Memory: s.Memory}
	for _, ip := range n.cfg.NodeIPs {
		if !ip.IsUnspecified() {
			shape.Address = ip
			break
		}
	}
	if !shape.Address.IsValid() {
		// The host's own address: an API server does not proxy to a loopback one. Without any, loopback it is.
		shape.Address = (&nodefacts.Real{}).Network().DefaultV4
	}
	n.cfg.Kubelet.MaxPods = s.Pods
	n.deps.Machine = agent.SimulatedMachine(shape)
	n.deps.Runtime, n.deps.Images = r.Clients()
	n.deps.Dialer = r
	n.log.Info("simulated node: pods are kept in memory and nothing runs", "cpus", shape.CPUs, "memory", shape.Memory.String(), "pods", s.Pods)
	return nil
}
