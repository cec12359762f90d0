// Package evictor carries out package evict: it measures the signals of resource pressure, and when the decision says so it removes
// dead containers and unused images, measures what pods use, and evicts a pod. It is the one place where the node's pressure
// conditions come from.
//
// Contract: a round measures, decides and begins what the decision wants. The time to the next round follows the distance to the
// nearest threshold (evict.Interval), so that a node at rest measures every 10 s and a shortage of memory is noticed within 250 ms.
// Wake begins a round at once. What may take long, removals and walks through disks, runs beside the rounds, one at a time.
// Nothing is kept for a later agent: an evicted pod stands in its checkpoint, and the rest is measured again.
package evictor
