// Package pleg is the pod lifecycle event generator: the one writer of the pod cache.
//
// A CRI event only says "inspect this pod now"; it is never taken as a status. One that tells of what the cache shows
// already, or of what an action under way is about to have inspected, causes no inspection of its own. A relist is the safety net: each
// second from a runtime without events, rarely from one that has them, and once after every (re)subscription.
//
// Contract and invariants:
//   - Every cache entry carries a stamp: when the inspection (or the listing that found it unchanged) began. What
//     happened in the runtime before the stamp is in the entry.
//   - A completed relist advances the stamps of all pods, those that the runtime no longer holds too, but not of a
//     pod that looked different in the listing or whose own inspection failed: that pod is inspected first.
//   - The event loop only marks keys and never blocks.
//   - A pod whose inspection hangs holds one goroutine, is named by Hung, OnHung and Trouble, and delays nobody else: those that
//     failed or hung once have places of their own, and who hangs for the first time keeps a place for a second. A
//     runtime whose listing hangs makes Healthy fail.
package pleg
