// Package pressure decides from measured signals whether a node is short of memory, disk or process IDs, and for which threshold
// the node has to reclaim resources.
//
// Contract: pure. Parse turns the eviction fields of KubeletConfiguration into thresholds, once. Evaluate is called
// with each measurement and the State that the previous call returned. Nothing here reads a clock, a file or the
// runtime.
//
// Invariants:
//   - A condition becomes True with the first measurement below a threshold, hard or soft ("The kubelet reports node
//     conditions to reflect that the node is under pressure because hard or soft eviction threshold is met, independent
//     of configured grace periods"). It stays True for the transition period after the last such measurement.
//   - A soft threshold is due only after it was met for its whole grace period without a break.
//   - A threshold stays met until its minimum reclaim is reached.
//   - A signal that was not measured is never assumed to be fine: a condition is Unknown if it has thresholds and none
//     of their signals was ever measured. A reading with a capacity of 0 counts as not measured, so it evicts no pod.
package pressure
