// Package agent is a Kubernetes node agent as a library: the same code that `wherry kubelet` runs, for programs that
// embed a node, or a thousand of them.
//
//	a, err := agent.New(agent.Config{NodeName: "n1", Kubelet: agent.DefaultConfiguration()}, agent.Deps{
//		Client: restConfig, Runtime: runtime, Images: images, Machine: agent.SimulatedMachine(agent.Shape{}), Log: log,
//	})
//	...
//	err = a.Run(ctx) // until ctx ends
//
// Contract: New does no IO (but for files that a rest.Config names) and starts nothing. Run blocks, and when it returns everything that it started has ended.
// Any number of agents live in one process: nothing is shared but what the caller shares through Deps. What a
// parameter needs and when it may be nil stands at its field.
//
// Stability: the exported names of this package are supported; everything else in this module is internal.
package agent
