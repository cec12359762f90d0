// Package syncloop holds the workers of a node: one per pod that a source wants or that the runtime still holds.
//
// It dispatches by key. All of these call Look(uid): a source whose pod changed, an inspection that is done, a probe whose result
// flipped, a change of an object that a pod refers to, and a runtime that is ready again. No goroutine dispatches. Run only does
// the housekeeping: leftovers of pods, dead containers, limits of storage and waiting resizes.
//
// Contract and invariants:
//   - A worker exists from the first look at a pod that is wanted or present until nothing of it is left.
//   - Admission is decided for one pod at a time, against all pods that the node has admitted and that have not ended.
//   - Two pods with the same full name never overlap: the newer one waits until nothing of the older one runs or is mounted.
//   - Nothing is stopped for being unwanted before every source has answered and the runtime was listed once.
package syncloop
