// Package timeline records why each pod is in its state: cause, decision, reason, wait and duration of every turn that
// decided something, in a small ring per pod.
//
// Contract: bounded in entries and in bytes per entry; safe for concurrent use; the caller supplies the time.
package timeline
