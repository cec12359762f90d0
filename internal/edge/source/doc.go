// Package source reads the pods that are wanted on this node: from the API server, from a directory, from a URL. Each source has
// one file; package manifest reads the texts, and package push is the source that clients write to.
//
// Contract: a source puts what it sees into a Target and decides nothing. An error is no deletion: a pod leaves only when the
// source answers without it.
package source
