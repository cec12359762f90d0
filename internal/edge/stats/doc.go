// Package stats measures the node and its pods when somebody asks, and answers in the three forms that the field
// reads: /stats/summary (JSON), /metrics/resource (what metrics-server and kubectl top read) and /metrics/cadvisor
// (what dashboards read). It also holds the catalogue of the agent's own metrics (Metrics, for /metrics).
//
// Contract: there is no polling loop and no goroutine: a node that nobody asks costs nothing. Numbers come from the
// control groups' own files, v1 or v2, found by one walk below the group of all pods; the runtime's CRI stats fill in
// what has no group here (a simulated runtime, a sandbox that is a virtual machine) and what only the runtime knows
// (the writable layer). CPU rates need two readings: the last one of each container is kept (48 bytes) until the
// container is gone, and a rate over the container's life stands in for the first.
//
// Handlers may be called concurrently. What cannot be measured is left out, never zero.
package stats
