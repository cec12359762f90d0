// Package launch makes a node of what a command line and its files say: the agent's configuration, and a simulated node's runtime and
// machine. What a node does is package agent's.
//
// Contract: Kubelet blocks until its context ends or the node fails, and joins all that it started. It is the process's only
// node: its memory and its metrics speak of the whole process.
package launch
