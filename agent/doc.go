// Package agent is a Kubernetes node agent as a library: the same code that `wherry kubelet` runs, for programs that
// embed a node, or a thousand of them.
//
//	a, err := agent.New(cfg, deps)
//	...
//	err = a.Run(ctx) // until ctx ends
//
// Config says what the node is, Deps what the caller has for it already. Run opens what Deps does not bring: the connection to the
// container runtime, an identity in the cluster, its certificates, ports and the control socket. The node is the machine that the
// process runs on (RealMachine), or one that does not exist: package agent/simulated.
//
// # Contract
//
// New checks the configuration, does no IO and starts nothing. Run may be called once; it blocks, and when it returns everything
// that it started has ended. Pods keep running without an agent. Any number of agents live in one process: nothing is shared but
// what the caller shares through Deps. What a field needs, and when it may be nil, stands at the field.
//
// # Stability
//
// The exported names of this package and of agent/simulated are the public API of this module; all types in it are public ones, and a
// test in a module of its own is built against it (examples/embed). Before version 1, a minor release may change it, and the changelog
// says how. From version 1 on it follows Go's promise: a program that compiles goes on to compile, except where it builds a struct of
// this package without the names of its fields, or implements one of its interfaces that a minor release has extended. Packages below
// internal/ may change in any way at any time.
package agent
