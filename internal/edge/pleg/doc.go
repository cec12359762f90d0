// Package pleg is the pod lifecycle event generator: the one writer of the pod cache.
//
// A CRI event only says "inspect this pod now"; the generator never takes it for a status. It ignores an event about a state that
// the cache already shows. It delays an event about the result of an action in flight, because that action asks for an inspection
// itself. The relist is the safety net: every second with a runtime without events, rarely with one that has them, and once after
// every (re)subscription.
//
// Contract and invariants:
//   - Every cache entry has a stamp: the time when the inspection, or the listing that found the pod unchanged, began. The entry shows
//     everything that happened in the runtime before its stamp.
//   - A completed relist advances the stamp of every pod that the listing shows unchanged, and of every pod that the runtime
//     does not hold. A pod that looks different, or whose last inspection failed, is inspected first.
//   - The goroutine that receives events only marks pods for inspection, and never blocks.
//   - A pod whose inspection hangs holds one goroutine and delays no other pod: pods whose last inspection failed or hung have a pool of
//     their own, and a pod that hangs for the first time holds its slot for one second. Hung, OnHung and Trouble report the pod. A
//     listing that hangs makes Healthy fail.
package pleg
