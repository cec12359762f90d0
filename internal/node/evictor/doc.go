// Package evictor carries out the decisions of package evict. It measures the signals of resource pressure. If the decision says so,
// it removes dead containers and unused images, measures what pods use, and evicts a pod. The node's pressure conditions come from
// this package only.
//
// Contract: a round measures, decides, and begins the actions of the decision. The time to the next round depends on the distance to
// the nearest threshold (evict.Interval): a node at rest measures every 10 s, and a shortage of memory is noticed within 250 ms. Wake
// begins a round at once. Removals and measurements of disks may take long, so they run in a goroutine of their own, one at a time,
// and the rounds go on meanwhile. Nothing is stored for a later agent: the checkpoint of a pod says that it was evicted, and
// everything else is measured again.
package evictor
