// Package plugin finds plugins of the node, such as CSI drivers, by the sockets that they put into the directory plugins_registry,
// and registers them (registration API v1 of Kubernetes).
//
// Contract: New does no IO. Run watches the directory until its context ends, and joins all it started. For each socket it asks the
// plugin who it is, hands it to the Handler of its type, and tells it the result. A socket that is made again, as by a driver that
// was restarted, is registered again. A socket that disappears ends the registration. A plugin that does not answer is tried again,
// each time after twice the wait, and delays no other. Handlers are called for several plugins at once, but never at once for one
// socket.
package plugin
