// Package socket opens a node's control socket: a Unix socket that only the agent's user may open, which belongs to one agent at a
// time.
//
// Contract: Listen takes over the socket of an agent that was killed, and fails with ErrInUse where one lives. The socket has its
// mode from the first moment. Close removes it.
package socket
