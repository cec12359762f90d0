// Package syncloop holds the workers of a node: one per pod that a source wants or that the runtime still holds.
//
// It dispatches by key. All of these call Look(uid): a source whose pod changed, an inspection that is done, a probe whose result
// flipped, a change of an object that a pod refers to, and a runtime that is ready again. No goroutine dispatches. Run only does
// the housekeeping: leftovers of pods, dead containers, limits of storage and waiting resizes.
//
// What a turn means for the API is the subject of package report, and in which order pods get the resources that they ask for is that of
// package resizes. The loop decides when: it has the admission lock, and knows which pods hold resources.
//
// Contract and invariants:
//   - A worker exists from the first look at a pod that is wanted or present until nothing of it is left.
//   - Admission is decided for one pod at a time, against all pods that the node has admitted and that have not ended.
//   - Two pods with the same full name never overlap: the newer one waits until nothing of the older one runs or is mounted.
//   - Nothing is stopped for being unwanted before every source has answered and the runtime was listed once.
package syncloop
