// Package plugin finds plugins of the node, such as CSI drivers, by the sockets that they put into the directory plugins_registry,
// and registers them (registration API v1 of Kubernetes).
//
// Contract: New does no IO. Run watches the directory until its context ends, and joins all it started. For each socket it asks the
// plugin for its name, type and endpoint, calls the Handler of the plugin's type, and tells the plugin the result. If a new socket
// replaces a socket of the same path, as after the restart of a driver, its plugin is registered again. If a socket disappears, its
// plugin is deregistered. A plugin that does not answer, or cannot be registered, is asked again, each time after a wait twice as
// long, and delays no other plugin. Handlers are called concurrently for different plugins, but never concurrently for one socket.
//
// A plugin may be hostile: the number of sockets, the depth of directories, the bytes and the names in an answer, and the time for an
// answer have bounds.
package plugin
