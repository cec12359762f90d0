// Package pod has the types that all layers share: the identity of a pod (Ref), what the runtime reports about it (Observed),
// what the agent does to it (Action) and the result (Outcome).
//
// Contract: values only. Nothing here does IO, reads a clock, logs, or starts a goroutine. All values may be copied. An Observed
// must not be changed after the pod cache has published it.
package pod
