// Package launch builds a node from a command line and its files: the agent's configuration, and the runtime and machine of a
// simulated node. Package agent does the rest.
//
// Contract: Kubelet blocks until its context ends or the node fails, and waits for all that it started. It must be the only
// node of the process, because its memory and its metrics are those of the whole process.
package launch
