// Package simulated has nodes that do not exist: a container runtime in memory on a machine in memory. An agent on one behaves
// towards its API server as on a real machine, and nothing runs. A process bears thousands of them.
//
//	n := simulated.New(simulated.Config{CPUs: 8})
//	defer n.Close()
//	deps := n.Deps()
//	deps.Client, deps.Log = restConfig, log
//	a, err := agent.New(agent.Config{NodeName: "n1", Kubelet: agent.DefaultConfiguration()}, deps)
//
// What containers do follows from their command (sleep, exit, echo, true, false; a command that is not known is a server, which
// runs until it is stopped), and from annotations of their pod, whose names are the constants here.
//
// Contract: New starts nothing. A Node may have one agent after another, which finds the containers of the one before as they
// are, but no two at once. Methods may be called concurrently.
package simulated
