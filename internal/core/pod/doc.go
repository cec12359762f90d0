// Package pod is the vocabulary that every layer shares: who a pod is (Ref), what a runtime says of it
// (Observed), what an agent may do about it (Action) and how that went (Outcome).
//
// Contract: values only. Nothing here does IO, reads a clock, logs, or starts a goroutine. Everything may be
// copied; an Observed that has been published by the pod cache is read-only from then on.
package pod
