// Package source reads the pods that are wanted on this node: from the API server, from a directory, from a URL. Each
// source has a file of its own. Package manifest parses the texts, and package push is the source that clients write
// to.
//
// Contract: a source puts what it reads into a Target and decides nothing. It never confuses "cannot read" with "deleted": a pod
// is removed only when the source answers without it.
package source
