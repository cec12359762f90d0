// Package referents finds what pods refer to by name: ConfigMaps, Secrets, tokens of service accounts, Services and runtime classes.
// Pods of the API find it in the API; static pods, and pods of a node without an API server, among what came with manifests.
//
// Contract: which of the two a pod is follows from where the node got it, never from what it says of itself. New does no IO; Run
// follows what is tracked until its context ends.
package referents
