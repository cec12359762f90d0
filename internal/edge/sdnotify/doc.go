// Package sdnotify tells a service manager (systemd) how its service is: started, at work, stopping, alive. The protocol is that of
// sd_notify(3): lines of NAME=value in one datagram to a Unix socket that the environment names.
//
// Contract: Open reads the environment and opens nothing where no manager asks; all methods of the nil *Manager do nothing. Methods
// may be called concurrently. A datagram that the manager does not take is lost: each says the whole of what it is about.
package sdnotify
