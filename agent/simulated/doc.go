// Package simulated has nodes that do not exist: a container runtime in memory on a machine in memory. An agent on one behaves
// towards its API server as on a real machine, but no container really runs. One process can have thousands of such nodes.
//
//	n := simulated.New(simulated.Config{CPUs: 8})
//	defer n.Close()
//	deps := n.Deps()
//	deps.Client, deps.Log = restConfig, log
//	a, err := agent.New(agent.Config{NodeName: "n1", Kubelet: agent.DefaultConfiguration()}, deps)
//
// What containers do follows from their command (a simple shell with sleep, exit, echo, true, false and a few more; an unknown
// command counts as a server, which runs until it is stopped), and from annotations of their pod, whose names are the constants here.
//
// Contract: New starts nothing. Several agents may use a Node one after another, but not at once; each finds the containers that
// the agent before it left. Methods may be called concurrently.
package simulated
