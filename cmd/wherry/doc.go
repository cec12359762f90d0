// Command wherry is one binary with several commands. `wherry kubelet` is the node agent; under the program name `kubelet` the
// binary is the node agent too. token, csr and lease are tools for steps of a node's life that people sometimes do by hand.
//
// Contract: this package only connects other packages. internal/edge/config reads the options, internal/cli/handtools does
// the work of the tools, and package agent is the agent.
package main
