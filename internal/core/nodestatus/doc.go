// Package nodestatus computes a Node object: for registration (Build), for the adoption of an existing object
// (Reconcile) and for every status update (Update).
//
// Contract: pure. Settings comes from the configuration; Facts is the newest measurement. Nothing here reads a clock, a file, the
// network or the runtime, or changes a Node that is passed in.
//
// Invariants:
//   - Every condition follows from Facts. A value that was not measured makes a condition Unknown or the node not
//     ready, and is never assumed to be fine.
//   - Fields of other owners are kept: spec, volumesAttached, conditions and labels of others, and extended resources that
//     somebody patched into capacity.
//   - The same Facts give the same status, byte for byte, except for heartbeat times: lists are sorted, so a quiet node
//     sends nothing.
//   - Ready is the last of our conditions.
package nodestatus
