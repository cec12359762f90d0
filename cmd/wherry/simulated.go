package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/config"
)

// openSimulated gives the node a runtime in memory and a machine that does not exist. Its address is one of this
// host's where --node-ip says so, so that the API server reaches the node's own API.
func (n *node) openSimulated(s *config.SimulatedNode) error {
	logs := filepath.Clean(n.cfg.Kubelet.PodLogsDir) != systemLogs
	sim := simulated.Config{CPUs: int(s.CPU.Value()), Memory: s.Memory, Logs: logs, Log: n.log}
	for _, ip := range n.cfg.NodeIPs {
		if !ip.IsUnspecified() {
			sim.Address = ip
			break
		}
	}
	if !sim.Address.IsValid() {
		// The host's own address: an API server does not proxy to a loopback one. Without any, loopback it is.
		sim.Address = simulated.HostAddress()
	}
	n.cfg.Kubelet.MaxPods = s.Pods
	r := simulated.New(sim)
	n.closes = append(n.closes, r.Close)
	if err := n.serveStreams(r); err != nil {
		return err
	}
	d := r.Deps()
	n.deps.Machine, n.deps.Runtime, n.deps.Images, n.deps.Dialer = d.Machine, d.Runtime, d.Images, d.Dialer
	n.log.Info("simulated node: pods are kept in memory and nothing runs", "cpus", sim.CPUs, "memory", sim.Memory.String(), "pods", s.Pods)
	return nil
}

// systemLogs is where a real node's logs go: a simulated one writes there only what it is told to.
const systemLogs = "/var/log/pods"

// serveStreams lets exec, attach and port-forward reach the simulated containers.
func (n *node) serveStreams(r *simulated.Node) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for streams of the simulated runtime: %w", err)
	}
	n.closes = append(n.closes, func() { _ = l.Close() })
	n.parts = append(n.parts, func(ctx context.Context) error {
		return r.ServeStreams(ctx, l)
	})
	return nil
}
