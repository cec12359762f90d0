// Package agent is a Kubernetes node agent as a library: the same code that `wherry kubelet` runs, for programs that
// embed a node, or a thousand of them.
//
//	a, err := agent.New(cfg, deps)
//	...
//	err = a.Run(ctx) // until ctx ends
//
// Config describes the node, and Deps has what the caller already has for it. Run opens what is missing in Deps: the connection
// to the container runtime, an identity in the cluster, its certificates, ports and the control socket. The node is the machine
// of the process (RealMachine), or a simulated one: package agent/simulated.
//
// # Contract
//
// New checks the configuration, does no IO and starts nothing. Run may be called once. It blocks, and when it returns,
// everything that it started has ended. Pods keep running without an agent. Any number of agents can run in one process: they
// share only what the caller shares through Deps. Each field documents what it needs, and whether it may be nil.
//
// # Stability
//
// The exported names of this package, of agent/simulated, of agent/fleet and of agent/fleet/fleettest are the public API of this module. It
// uses public types only. A program in another module is built against agent and agent/simulated (examples/embed). Before version 1, a minor
// release may change the API, and the changelog describes how. From version 1 on it follows Go's promise: a program that compiles continues
// to compile, except if it builds a struct of these packages without field names, or implements an interface that a minor release has
// extended.
// Packages below internal/ may change in any way at any time.
package agent
