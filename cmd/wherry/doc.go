// Command wherry is one binary with several commands. `wherry kubelet` is the node agent; if the binary is named `kubelet`, it is also the
// node agent. The commands token, csr and lease let people do by hand what a node and its control plane usually do automatically.
//
// Contract: this package only connects other packages. internal/edge/config reads the agent's flags and files, internal/cli has the other
// commands, and package agent is the agent.
package main
