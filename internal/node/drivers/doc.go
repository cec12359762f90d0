// Package drivers keeps the CSI drivers of this node: it takes them from the registration of plugins, asks each about itself, tells
// the cluster, and gives them to whoever mounts volumes.
//
// Contract: a driver is given out as soon as it has answered, and as long as its socket is there. Methods may be called
// concurrently; no lock is held during IO. Register may hang as long as a driver does, and delays only that driver.
package drivers
