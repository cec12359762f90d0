// Package podworker drives one pod: look, decide, start work, return.
//
// A Worker's turn runs in a goroutine of its own. It waits for no other pod, and its only IO is its own checkpoint, so a disk
// that hangs stops this pod and no other. A turn reads the desired pod and the pod cache, stores the new outcomes in its memory,
// calls decide.Decide, begins the planned actions that are not in flight, reports the result, arms one timer and returns. A
// changed spec, a changed runtime, a flipped probe, an outcome and the timer all send the same message: look again.
//
// Contract and invariants:
//   - A worker at rest has no goroutine, and no timer except one time.AfterFunc if the plan names a time.
//   - Turns of one worker never overlap; its actions may.
//   - After an outcome that touched the runtime the worker asks for an inspection, and until the cache entry is newer
//     than that outcome nothing is started (Stale).
//   - Only the worker's turn writes Memory. It writes the checkpoint when a kept field has changed.
//   - Starts are paced: a pod starts sandboxes and containers only while it has a slot of the Gate, so that pods finish one after
//     another.
package podworker
