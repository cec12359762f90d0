// Package sdnotify reports the state of this process to its service manager (systemd): started, at work, stopping, alive. The
// protocol is that of sd_notify(3): lines of NAME=value in one datagram to a Unix socket that the environment names.
//
// Contract: Open reads the environment. If it names no manager, Open opens nothing and returns a nil *Manager, whose methods do
// nothing. Methods may be called concurrently. A datagram that the manager does not receive is lost, which does no harm because
// each datagram is complete.
package sdnotify
