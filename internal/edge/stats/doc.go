// Package stats measures the node and its pods when a request comes, and answers in three forms: /stats/summary (JSON),
// /metrics/resource (for metrics-server and kubectl top) and /metrics/cadvisor (for dashboards). It also holds the
// agent's own metrics (Metrics, for /metrics).
//
// Contract: there is no polling loop and no goroutine, so a node without requests costs nothing. The numbers come from
// the files of the control groups, v1 or v2, which one walk below the group of all pods finds. The runtime's CRI stats
// supply the numbers of pods that have no group here (of a simulated runtime, or in a virtual machine), and those that
// only the runtime knows (the writable layer). A CPU rate needs two readings: the last one of each container is kept
// (48 bytes) until the container is gone. The first rate of a container is the average over its life.
//
// Handlers may be called concurrently. A value that cannot be measured is left out, never shown as zero.
package stats
