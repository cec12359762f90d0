// Package fleetctl implements wherry fleet. It starts a control plane if the user names no cluster, runs a fleet (package agent/fleet), and
// talks to a running fleet over its socket.
//
// Contract: a command returns when its work is done or its context ends. Run ends everything that it has started.
package fleetctl
