// Package drivers keeps the CSI drivers of this node. Package plugin calls Register for each driver that it finds. Register asks the
// driver for its node ID, adds the driver to the node's CSINode object in the API, and from then on Driver returns it to the callers
// that mount volumes. Run asks a driver again how many volumes the node can have, if its CSIDriver object says so.
//
// Contract: Driver returns a driver from the end of its registration until its socket is gone. Methods may be called concurrently; no
// lock is held during IO. Register may hang as long as the driver does, and then delays no other driver. Only the requests to the API
// server are sent one after another, each with a bound.
package drivers
