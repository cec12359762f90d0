// Command wherry is one binary with several commands. `wherry kubelet` is the node agent; so is the binary itself under the name `kubelet`.
// token, csr and lease are tools for steps of a node's life that people sometimes do by hand.
//
// Contract: this package only connects other packages. internal/edge/config reads the agent's flags and files, internal/cli has the other
// commands, and package agent is the agent.
package main
