// Package podctl is the client of a node's control socket: what wherry run, ps, logs, exec, attach, stop, rm, events and explain do,
// without their flags.
//
// Contract: each command is a struct of its options with a method that does it and writes to the Streams given. It finds its agent
// by itself: on the socket that Target names, or on one of the usual ones. A failing container ends a command with an ExitStatus.
// Texts that come from elsewhere reach no terminal with control characters in them (SayError).
package podctl
