// Package objects reads what pods refer to: ConfigMaps, Secrets, service account tokens and Services.
//
// Contract: Track passes the pods. Objects reads only what they refer to, because the Node authorizer allows no more. It
// watches each object once, however many pods refer to it, and stops when no pod does.
// The methods that read may be called from any goroutine and wait for a first answer until their context ends.
// New starts nothing; Run(ctx) joins all it started.
//
// Invariants:
//  1. A pod that refers to an object gets Notify after every change of it, also when it appears or disappears.
//     Notify carries no content: read again.
//  2. "Not found" does not end a watch: it goes on and reports when the object appears.
//  3. An immutable object is no longer watched once it was read.
//  4. A token that is still valid stays in use when its renewal fails.
//  5. Notify also says, once, that a token of the pod is due for renewal: the next read renews it. One timer waits for all.
//
// Local does the same for objects that come from manifests instead of an API server.
//
// Cost of a watched object: one goroutine here, one of client-go's stream decoder, one HTTP/2 stream with a goroutine of
// its own, together 21 KiB (measured), and the object without its metadata. The change detection strategies Get and Cache
// cost nothing at rest and a request per read.
package objects
