// Command wherry is one binary with several commands: the node agent (`wherry kubelet`, or any program name that ends in
// `kubelet`), and tools for the steps of a node's life that people do by hand (token, csr, lease).
//
// Contract: this package only wires. internal/edge/config reads the options, internal/cli/handtools does the work of the tools,
// and package agent is the agent.
package main
