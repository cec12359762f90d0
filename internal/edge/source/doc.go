// Package source reads the pods that are wanted on this node, one file per source.
//
// Contract: a source puts what it sees into a Target and decides nothing. It never takes "cannot tell" for "gone":
// a pod leaves only when the source says so.
//
// Pods that do not come from the API are written by people. Decode reads their manifests strictly, completes them as the
// API server would and says what is wrong by file, line and field; Origin.Static gives them the identity of a static pod.
package source
