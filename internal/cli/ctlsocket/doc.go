// Package ctlsocket lets commands talk to a long-running command of the same machine, such as `wherry fleet`, over its control socket: HTTP
// with JSON over a Unix socket. Package socket opens the socket.
//
// Contract: a request and an answer are bounded in size and time. Guard refuses processes of containers and of other users.
package ctlsocket
