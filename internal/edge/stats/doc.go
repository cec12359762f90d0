// Package stats measures the node and its pods at each request, and answers in three forms: /stats/summary (JSON), /metrics/resource
// (for metrics-server and kubectl top) and /metrics/cadvisor (for dashboards). It also holds the agent's own metrics (Metrics, for
// /metrics).
//
// Contract: there is no polling loop, so a node without requests costs nothing: Run asks the runtime once where it keeps images and
// writable layers, and then measures logs if a scrape wants that. The numbers come from the files of the control groups, v1 or v2, which the agent
// finds by one walk below the group of all pods. CRI statistics supply the numbers of pods that have no control group on the node
// (because the runtime is simulated or uses virtual machines), and the numbers that only the runtime knows (the writable layer). A CPU
// rate needs two readings: the last reading of each container is kept (48 bytes) until the container is gone. The first rate of a
// container is the average since its start. On a node without control groups the last CPU time of what is gone is kept too (totals), so
// that the counters of the node and of pods never fall. The last size of each container's logs is kept too (about 40 bytes), because a scrape of
// /metrics does not walk through logs: LogSizes.
//
// Handlers may be called concurrently. A value that cannot be measured is left out, never shown as zero.
package stats
