// Package work holds the workloads that the benchmark measures. Every agent runs the same pods; the arms without an agent (baselines that
// the agents are compared with) create the same sandboxes and containers. Each run returns samples by name; package table compares them.
package work
