// Package source reads the pods that are wanted on this node: from the API server, from a directory, from a URL. Each source has a
// file of its own. Package manifest parses the texts, and package push is the source that clients write to.
//
// Contract: a source passes the pods that it reads to a Target and decides nothing. It never confuses "cannot read" with "deleted": a
// pod is removed only after a successful read that does not contain the pod.
package source
