// Command wherry is one binary with several faces: the node agent (`wherry kubelet`, or any name that ends in
// `kubelet`), and the hand tools for the steps of a node's life that people do by hand (token, csr, lease).
//
// Contract: this package only wires. Options are read in internal/edge/config, the tools' work is done in
// internal/cli/handtools, the agent is package agent.
package main
