// Package cricontract is what a CRI v1 runtime has to do for a node agent to work on it: one suite, run against
// containerd and against simcri. Where they differ, simcri is wrong.
//
// Contract: a case leaves nothing behind that it made. Cases may run at the same time on one runtime. They use
// commands that both a real busybox and the tiny shell of simcri know: sleep, echo, exit, true.
package cricontract
