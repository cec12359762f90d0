// Package drivers keeps the CSI drivers of this node. The registration of plugins calls it for each driver; it asks the driver about
// itself, tells the cluster, and gives the driver to the callers that mount volumes.
//
// Contract: a driver is given out from the end of its registration until its socket is gone. Methods may be called concurrently; no
// lock is held during IO. Register may hang as long as the driver does, and then delays no other driver. Only the requests to the API
// server are sent one after another, each with a bound.
package drivers
