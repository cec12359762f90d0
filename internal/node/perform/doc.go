// Package perform does what a plan says: one straight-line file per verb, IO and nothing else.
//
// Contract: Do blocks until the action has ended and returns its outcome; it never retries and never decides.
// Actions of different pods, and those of one pod that a plan lists together, run concurrently. Doing an action
// twice is harmless: what exists already is adopted, what is gone already is fine. A failure carries the field's
// word for it (Outcome.Reason), and the event that a user looks for is recorded where it happens.
package perform
