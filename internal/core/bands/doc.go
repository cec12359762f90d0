// Package bands says what a pod does over time. A band is one such state: pulling, waiting, starting, running, ready, failing, ending.
//
// Contract: pure functions of values, which may be called concurrently. Now names the band of a pod in one turn of its worker; the
// worker stores it with the decision. Spans turns the stored decisions into stripes, from which a picture of the pod's life is drawn.
//
// Invariants:
//
//   - The band is decided from typed values: the plan's phase, the verbs in flight, the states of containers, and back-offs.
//   - Spans are in order, do not overlap and leave no gap; only the last one is open.
package bands
