// Package podstatus derives the status that the API shows of a pod from what is known of it: Derive(Input)
// v1.PodStatus.
//
// Contract: pure. The result shares nothing that may change with its input; times are whole seconds, as the API
// keeps them, so that two statuses that say the same are equal. It holds the conditions that a node owns (and
// DisruptionTarget, when the node ended the pod): conditions of others are not in it, the writer leaves them alone.
//
// Invariants:
//
//   - a terminal phase (Succeeded, Failed) is reported only when nothing of the pod runs, and is never left
//   - a restart count never falls; the start time never changes
//   - a condition keeps its transition time while its status is the same
//   - a container that was reported to run and that the runtime knows no more is reported as ended
//     (ContainerStatusUnknown, 137), never as one that never ran
//   - while a container is the same, Started and Ready survive the agent
package podstatus
