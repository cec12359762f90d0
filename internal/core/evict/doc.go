// Package evict decides what a node does when it runs short of memory, disk space, inodes or process IDs: what it removes itself,
// which pod it evicts, and when it waits. The conditions of the node follow from the same decision.
//
//	signals, thresholds ──► pressure.Evaluate ──► conditions
//	                              │ a threshold is due
//	                              ▼
//	                 Reclaim (dead containers, unused images) ──► enough, or enough a moment later: no pod is evicted
//	                              │ still due
//	                              ▼
//	                 rank (needs the pods' usage: Measure) ──► Evict one pod
//	                              │
//	                              ▼
//	                 wait until the pod has ended and its memory or disk space is available again ──► still due: from the top
//
// Contract: pure. Decide is called with each measurement and the State that the previous call returned. It returns at most one of
// Reclaim, Measure and Evict; the caller carries it out and calls Decide again.
//
// Invariants:
//   - A static pod, a mirror pod and a pod of a system-critical priority are never evicted.
//   - No pod is evicted unless a threshold is due with the newest measurement: it is met, and its grace period is over.
//   - One pod at a time: the next pod is evicted only after the last one has ended and its memory or disk space is available again, or
//     after a bounded wait. But the grace period of a pod that was evicted for a soft threshold does not delay the relief of a hard
//     threshold, and a hard threshold of memory waits only until the memory of the last pod is available again.
//   - Dead containers and unused images are removed before the first pod is evicted, and again before each further one.
//   - The order of pods is that of the Kubernetes documentation ("Pod selection for kubelet eviction"): see rank.go.
//   - A shortage for which nothing can be done does not delay the relief of another shortage.
package evict
