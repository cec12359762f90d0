// Package source reads the pods that are wanted on this node, one file per source.
//
// Contract: a source puts what it sees into a Target and decides nothing. It never takes "cannot tell" for "gone":
// a pod leaves only when the source says so.
package source
