// Package podworker drives one pod: look, decide, start work, return.
//
// A Worker's turn runs in a goroutine of its own. It waits for no other pod, and its only IO is its own checkpoint, so a disk
// that hangs stops this pod and no other. A turn reads the desired pod and the pod cache, notes the outcomes that have come in
// its memory, calls decide.Decide, begins the planned actions that are not in flight, reports the result, arms one timer and
// returns. A changed spec, a changed runtime, a flipped probe, an outcome and the timer all send the same message: look
// again.
//
// Contract and invariants:
//   - A worker at rest has no goroutine, and no timer but its one time.AfterFunc where the plan names a time.
//   - Turns of one worker never overlap; its actions do.
//   - After an outcome that touched the runtime one inspection is asked for, and until the cache entry is newer
//     than that outcome nothing is started (Stale).
//   - Memory is written by the worker's turn alone, and to the checkpoint when a kept field changed.
//   - Starts are paced: a pod starts things only while it holds a place at the Gate, so that pods finish one after
//     another.
package podworker
