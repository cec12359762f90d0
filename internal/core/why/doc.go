// Package why answers the question "why is my pod not running?": it names one typed cause, the facts that show it, since when
// it holds, what the node does next and when, and what a person can do.
//
// Contract: Explain is a pure function of an Input. It reads what the last turn of the pod's worker read and decided, the status
// of the pod, and what its probes and inspections last reported. It changes nothing, keeps nothing, and may be called
// concurrently.
//
// Invariants:
//
//   - Every pod has an answer, and every answer has a cause of the closed list Causes.
//   - The cause is decided from typed values. Only the words of a runtime, which have no type, are compared as text (runtime.go).
//   - Texts of containers and runtimes are bounded and free of control characters.
package why
