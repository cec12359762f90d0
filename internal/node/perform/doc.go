// Package perform executes the actions of a plan: one straight-line file per kind of action, IO and nothing else.
//
// Contract: Do blocks until the action has ended and returns its outcome. It never retries and never decides. Actions of different
// pods run concurrently, and so do the actions that one plan lists together. Actions are idempotent: an object that exists is
// adopted, and an object that is already gone is no error. A failure carries the reason that Kubernetes uses for it (Outcome.Reason).
// The code that meets a failure also records its event.
package perform
