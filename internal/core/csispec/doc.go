// Package csispec makes the requests of the Container Storage Interface (CSI) by which a node makes a volume visible to a pod, and
// says what a driver's CSIDriver object asks for. It has values only.
//
// Names and texts that other programs read (attributes of pods, names of attachments, hashes in paths) are those of Kubernetes.
package csispec
