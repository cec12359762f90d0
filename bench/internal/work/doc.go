// Package work holds the workloads that the benchmark measures. Every agent runs the same pods; the arm without an agent makes the
// same sandboxes and containers by bare CRI calls. A run returns samples by name and decides nothing.
package work
