// Package nodestatus says what a Node object should look like: at registration (Build), on adoption of an existing
// object (Reconcile) and at every computation (Update).
//
// Contract: pure. Settings is what configuration says and does not change while an agent runs; Facts is what was
// measured just now. Nothing here reads a clock, a file, the network or the runtime. A Node that is passed in is
// never written to.
//
// Invariants:
//   - Every condition follows from Facts. What was not measured is Unknown or a reason for not being ready, never
//     assumed to be fine.
//   - Fields that others own are kept: spec, volumesAttached, conditions and labels of other owners, extended
//     resources patched into capacity by hand.
//   - The same Facts give the same status, byte for byte, heartbeat times apart: lists are sorted, so a quiet node
//     sends nothing.
//   - Ready is the last of our conditions.
package nodestatus
