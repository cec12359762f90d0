// Package view converts the node's data to the values that the console shows: rows of pods, one pod in detail, the node, a fleet.
// Each has a JSON form, which the page reads.
//
// Contract: pure functions, which may be called concurrently. The values hold no secrets: no environment variables, no commands, no
// annotations. Every list that a tenant can make long is bounded, and every text that a tenant chooses is bounded and free of control
// characters. A value changes only if something about the node or the pod has changed, so that a viewer receives each value once.
// Therefore a value has times, but no ages.
package view
