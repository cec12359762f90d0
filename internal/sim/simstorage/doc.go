// Package simstorage does in a cluster what the controllers of CSI drivers do (external-provisioner, external-attacher, external-resizer), for
// drivers whose volumes exist only as objects. It makes and deletes the persistent volumes of claims, attaches volumes at once, and grows them.
//
// Contract: it needs the controllers of Kubernetes, which bind claims and create VolumeAttachments. Each object is handled by one goroutine at a
// time, from what was last read of it, so any step may be repeated. At rest there is one goroutine for each of the three watches. A volume is
// given the topology of the node that the scheduler selected or, for a class that binds at once, of any node that has the driver.
package simstorage
