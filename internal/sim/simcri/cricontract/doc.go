// Package cricontract tests what a node agent needs from a CRI v1 runtime: one suite, run against containerd and against
// simcri. If they differ, simcri is wrong.
//
// Contract: a case removes everything that it creates. Cases may run at the same time on one runtime. They use commands that
// both a real busybox and the simple shell of simcri have: sleep, echo, exit, true.
package cricontract
