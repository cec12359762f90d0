// Package pressure decides from measured signals whether a node is short of memory, disk or process IDs, and what
// would have to be reclaimed.
//
// Contract: pure. Parse turns the eviction fields of KubeletConfiguration into thresholds, once; Evaluate is
// called with each measurement and the State that the previous call returned. Nothing here reads a clock, a file
// or the runtime.
//
// Invariants:
//   - A condition turns True with the first measurement below a threshold, hard or soft ("The kubelet reports node
//     conditions to reflect that the node is under pressure because hard or soft eviction threshold is met,
//     independent of configured grace periods"), and stays True for the transition period after the last one.
//   - A soft threshold asks for reclaim only after it was met without a break for its grace period.
//   - A threshold whose minimum reclaim is not yet reached stays met.
//   - What was not measured is said to be Unknown, never assumed to be fine: a condition is Unknown when thresholds
//     are configured for it and none of their signals has been measured.
package pressure
