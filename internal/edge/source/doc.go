// Package source reads the pods that are wanted on this node. Each source has a file of its own.
//
// Contract: a source puts what it reads into a Target and decides nothing. It never confuses "cannot read" with
// "deleted": a pod goes only when the source says so.
//
// People write the pods that do not come from the API. Decode reads their manifests strictly, completes them as the API
// server would, and reports errors by file, line and field. Origin.Static gives the pods the identity of static pods.
package source
