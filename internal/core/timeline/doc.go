// Package timeline records why each pod is where it is: cause, decision, reason, wait and duration of every turn
// that decided something, in a small ring per pod.
//
// Contract: bounded in entries and in bytes per entry; safe for concurrent use; the clock is the caller's.
package timeline
