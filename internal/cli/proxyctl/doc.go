// Package proxyctl implements wherry cri proxy. It runs a proxy of CRI (package criproxy) between a node and its real container runtime, plays
// scenarios of faults in it, records its calls, and talks to a running proxy over its control socket.
//
// Contract: a command returns when its work is done or its context ends. Run ends everything that it has started, and no error of the
// runtime or of the record ends it.
package proxyctl
