// Package podstatus derives the status of a pod for the API: Derive(Input) v1.PodStatus.
//
// Contract: pure. The result shares nothing with the input that may change. Times are whole seconds, as the API stores them, so
// that two statuses with the same content are equal. The result has only the conditions that a node owns (and DisruptionTarget,
// if the node ended the pod). Conditions of others are not in it, and the writer does not touch them.
//
// Invariants:
//
//   - a terminal phase (Succeeded, Failed) is reported only when nothing of the pod runs, and is never left
//   - a restart count never falls; the start time never changes
//   - a condition keeps its transition time while its status is the same
//   - a container that was reported as running and that the runtime no longer has is reported as ended
//     (ContainerStatusUnknown, 137), never as a container that never ran
//   - Started and Ready survive a restart of the agent, as long as the container instance is the same
package podstatus
