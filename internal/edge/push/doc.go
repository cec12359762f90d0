// Package push is the source of the pods that clients send to the node over HTTP, with the ConfigMaps and Secrets that
// those pods refer to.
//
// Contract: New does no IO. Each change is on disk before it has an effect, so that the next agent continues after an agent was
// killed. A pod is removed only when a client deletes it. Handlers may be called concurrently.
package push
