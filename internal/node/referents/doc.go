// Package referents finds the objects that pods refer to by name: ConfigMaps, Secrets, service account tokens, Services and
// runtime classes. For pods of the API it looks in the API. For static pods, and on a node without an API server, it looks
// among the objects that came with manifests.
//
// Contract: the source of a pod decides where to look, never the pod's own content. New does no IO. Begin follows the tracked
// objects until its context ends.
package referents
