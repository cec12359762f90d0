// Package csispec makes the requests of the Container Storage Interface (CSI) by which a node makes a volume visible to a pod, and
// reads from a driver's CSIDriver object what the driver needs. It does no IO.
//
// Names and texts that other programs read (attributes of pods, names of attachments, hashes in paths) are those of Kubernetes.
package csispec
