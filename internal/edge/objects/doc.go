// Package objects reads the objects that pods refer to: ConfigMaps, Secrets, service account tokens and Services.
//
// Contract: callers pass pods to Track. Objects reads only the objects to which these pods refer, because the Node authorizer allows no
// more. It watches each object once, however many pods refer to it, and stops when no pod does. The methods that read may be called
// from any goroutine. They wait for the API server's first answer about an object, at most until their context ends. New starts nothing;
// Run(ctx) joins all goroutines that it started.
//
// Invariants:
//  1. Notify is called for a pod after every change of an object that it refers to, also when the object appears or disappears.
//     Notify carries no content, so the pod's worker reads the object again.
//  2. "Not found" does not end a watch: the watch goes on, and reports the object when it appears.
//  3. An immutable object is no longer watched once it was read. For a pod that is new on the node it is read again.
//  4. A token that is still valid stays in use when its renewal fails.
//  5. Notify is also called, once, when a token of the pod is due for renewal. The next read renews it. There is one timer for all tokens.
//     A token counts as due, too, when the clock has jumped over that time or was set back: a node with pods looks once a minute.
//  6. For a pod that refers to too many objects (TooMany), Track starts no watch. Debug containers end no watch of their pod.
//
// Local does the same for objects that come from manifests instead of an API server.
//
// Cost of a watched object: one goroutine here, one of client-go's stream decoder, one HTTP/2 stream with a goroutine of its own,
// together 21 KiB (measured), and the object without its metadata. With the change detection strategies Get and Cache, an object
// costs nothing at rest and reads cost a request.
package objects
