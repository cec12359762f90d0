// Package fleetctl implements wherry fleet: it starts a control plane where the user names no cluster, runs a fleet (package
// agent/fleet), and talks to a running one over its socket.
//
// Contract: a command returns when its work is done or its context ends. Run ends all that it has started.
package fleetctl
