// Package podctl is the client of a node's control socket. It implements wherry run, ps, logs, exec, attach, stop, rm, events
// and explain, without their flags.
//
// Contract: each command is a struct with its options and a method that performs it and writes to the given Streams. It finds
// its agent on the socket of Target, or on one of the default ones. If a container fails, the command returns an ExitStatus.
// Texts of containers, tenants and runtimes reach a terminal only without control characters (SayError).
package podctl
