// Package objects reads what pods refer to: ConfigMaps, Secrets, service account tokens and Services.
//
// Contract: Track says which pods there are; only what they refer to is read, since that is all a node may read
// (the Node authorizer). Each object is watched once, however many pods refer to it, and no longer than one does.
// The methods that read may be called from any goroutine and wait for a first answer until their context ends.
// New starts nothing; Run(ctx) joins all it started.
//
// Invariants:
//  1. A pod that refers to an object gets Notify after every change of it, also when it appears or disappears.
//     Notify carries no content: read again.
//  2. "Not found" is an answer, not an end: the watch goes on and says when the object appears.
//  3. An object that says immutable is not watched any more.
//  4. A token that can still be used is never given up because its renewal fails.
//  5. Notify also says, once, that a token of the pod is due for renewal: the next read renews it. One timer waits for all.
//
// Local is the same for nodes and pods that have their objects from manifests instead of an API server.
//
// Cost of a watched object: one goroutine here, one of client-go's stream decoder, one HTTP/2 stream with a goroutine of
// its own, together 21 KiB (measured), and the object without its metadata. The change detection strategies Get and Cache
// cost nothing at rest and a request per read.
package objects
