// Package evict decides what a node does when it runs short of memory, disk space, inodes or process IDs: what it removes of
// its own accord, which pod goes, and when it waits. The conditions of the node follow from the same decision.
//
//	signals, thresholds ──► pressure.Evaluate ──► conditions
//	                              │ a threshold is due
//	                              ▼
//	                 Reclaim (dead containers, unused images) ──► enough: nobody goes
//	                              │ still due
//	                              ▼
//	                 Rank (needs the pods' usage: Measure) ──► Evict one pod
//	                              │
//	                              ▼
//	                 wait until it has ended and what it used is back ──► still due: from the top
//
// Contract: pure. Decide is called with each measurement and the State that the previous call returned. It returns at most one of
// Reclaim, Measure and Evict; the caller does that and calls Decide again.
//
// Invariants:
//   - A static pod, a mirror pod and a pod of a system-critical priority are never evicted.
//   - No pod is evicted unless a threshold is due with the newest measurement: it is met, and its grace period is over.
//   - One pod at a time: the next one goes only after the last one has ended and what it used is back, or a bounded wait is over.
//   - Dead containers and unused images are removed before the first pod goes, and again before each further one.
//   - The order of pods is that of the Kubernetes documentation ("Pod selection for kubelet eviction"): see Rank.
//   - A shortage for which nothing can be done does not hold up the relief of another one.
package evict
