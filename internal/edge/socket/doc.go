// Package socket opens a node's control socket: a Unix socket that only the agent's user may open, and that belongs to one
// agent at a time. ListenUnused opens such a socket at a path that other programs may use.
//
// Contract: Listen replaces the socket of an agent that was killed, and fails with ErrInUse if another agent listens. The
// socket's file never has a wider mode than 0600. Close removes the socket.
package socket
