package main

import "github.com/wherry-node/wherry/bench/internal/table"

// The arms, in the order of the columns.
const (
	bare     = "bare CRI"
	limit    = "limit"
	upstream = "upstream"
	wherry   = "wherry"
)

// rows are what is printed, in this order; samples that no row names are in the JSON alone.
var rows = []table.Row{
	{Title: "RSS idle", Short: true, Sample: "RSS, idle", Unit: table.MiB, Target: 0.4},
	{Title: "  of it anonymous", Sample: "RSS anonymous, idle", Unit: table.MiB},
	{Title: "  of it file pages", Sample: "RSS file, idle", Unit: table.MiB},
	{Title: "RSS with all pods", Short: true, Sample: "RSS, all pods", Unit: table.MiB, Target: 0.45},
	{Title: "  of it anonymous", Sample: "RSS anonymous, all pods", Unit: table.MiB},
	{Title: "  of it file pages", Sample: "RSS file, all pods", Unit: table.MiB},
	{Title: "RSS with all pods, after a restart", Sample: "RSS, all pods, after a restart", Unit: table.MiB},
	{Title: "CPU with all pods at rest, of a core", Short: true, Sample: "CPU at rest, % of a core", Unit: table.Percent, Target: 0.15},
	{Title: "one pod, create to Ready, p50", Short: true, Sample: "one pod, create to Ready", Unit: table.Milliseconds, Target: 0.5},
	{Title: "one pod, delete (grace 1 s) to gone, p50", Short: true, Sample: "one pod, delete to gone", Unit: table.Milliseconds, Target: 0.45},
	{Title: "pods at once, total", Short: true, Sample: "pods at once, create to Ready, total", Unit: table.Seconds, Target: 0.55},
	{Title: "pods at once, p50 of a pod", Short: true, Sample: "pods at once, create to Ready, each", Unit: table.Seconds, Target: 0.35},
	{Title: "pods at once, p99 of a pod", Sample: "pods at once, create to Ready, each", Unit: table.Seconds, Quantile: 0.99},
	{Title: "pods deleted (grace 1 s), total", Short: true, Sample: "pods deleted, delete to gone, total", Unit: table.Seconds, Target: 0.5},
	{Title: "CPU time per pod start, all processes", Short: true, Sample: "CPU per pod start, all", Unit: table.Milliseconds},
	{Title: "  shims and runc", Sample: "CPU per pod start, shims", Unit: table.Milliseconds},
	{Title: "  containerd", Sample: "CPU per pod start, containerd", Unit: table.Milliseconds},
	{Title: "  network plugins, starters of shims", Sample: "CPU per pod start, programs", Unit: table.Milliseconds},
	{Title: "  kube-apiserver", Sample: "CPU per pod start, API", Unit: table.Milliseconds},
	{Title: "  etcd", Sample: "CPU per pod start, etcd", Unit: table.Milliseconds},
	{Title: "  scheduler, controllers", Sample: "CPU per pod start, plane", Unit: table.Milliseconds},
	{Title: "  the agent", Sample: "CPU per pod start, agent", Unit: table.Milliseconds},
	{Title: "  the benchmark itself (in \"limit\" it is the agent, too)", Sample: "CPU per pod start, bench", Unit: table.Milliseconds},
	{Title: "CPU time per pod deletion, all processes", Sample: "CPU per pod deletion, all", Unit: table.Milliseconds},
	{Title: "  shims and runc", Sample: "CPU per pod deletion, shims", Unit: table.Milliseconds},
	{Title: "  containerd", Sample: "CPU per pod deletion, containerd", Unit: table.Milliseconds},
	{Title: "  network plugins, starters of shims", Sample: "CPU per pod deletion, programs", Unit: table.Milliseconds},
	{Title: "  kube-apiserver", Sample: "CPU per pod deletion, API", Unit: table.Milliseconds},
	{Title: "  etcd", Sample: "CPU per pod deletion, etcd", Unit: table.Milliseconds},
	{Title: "  scheduler, controllers", Sample: "CPU per pod deletion, plane", Unit: table.Milliseconds},
	{Title: "  the agent", Sample: "CPU per pod deletion, agent", Unit: table.Milliseconds},
	{Title: "  the benchmark itself (in \"limit\" it is the agent, too)", Sample: "CPU per pod deletion, bench", Unit: table.Milliseconds},
	{Title: "pods deleted by force (grace 0), to the end of the last process", Sample: "pods deleted by force, to the end of the last process", Unit: table.Seconds},
	{Title: "pod with 20 ConfigMap volumes, create to Ready, p50", Sample: "20 ConfigMap volumes, create to Ready", Unit: table.Milliseconds},
	{Title: "pod with 20 ConfigMap volumes, delete (grace 1 s) to gone, p50", Sample: "20 ConfigMap volumes, delete to gone", Unit: table.Milliseconds},
	{Title: "crowded node, pods at once, total", Sample: "dense, create to Ready, total", Unit: table.Seconds},
	{Title: "crowded node, pods at once, p50 of a pod", Sample: "dense, create to Ready, each", Unit: table.Seconds},
	{Title: "crowded node, RSS", Sample: "RSS, dense", Unit: table.MiB},
	{Title: "crowded node, pods deleted (grace 1 s), total", Sample: "dense, delete to gone, total", Unit: table.Seconds},
	{Title: "container death to API, p50", Sample: "container death to API", Unit: table.Milliseconds},
	{Title: "container death to API, p99", Short: true, Sample: "container death to API", Unit: table.Milliseconds, Quantile: 0.99, Limit: 0.1},
	{Title: "container death to the runtime's event, p50", Sample: "container death to the runtime's event", Unit: table.Milliseconds},
	{Title: "container death to the runtime's event, p99", Sample: "container death to the runtime's event", Unit: table.Milliseconds, Quantile: 0.99},
	{Title: "first start to Ready, with TLS bootstrap", Sample: "first start to Ready", Unit: table.Milliseconds},
	{Title: "start to Ready, no pods", Sample: "start to Ready, no pods", Unit: table.Milliseconds},
	{Title: "restart with all pods, to Ready", Short: true, Sample: "restart with all pods, to Ready", Unit: table.Milliseconds, Target: 0.6},
	{Title: "restart, changes of pods in the API", Sample: "restart, changes of pods in the API"},
	{Title: "CPU, each pod with an exec probe a second, of a core", Short: true, Sample: "CPU with a probe a second, exec", Unit: table.Percent, Target: 0.5},
	{Title: "CPU, each pod with an HTTP probe a second, of a core", Sample: "CPU with a probe a second, http", Unit: table.Percent},
	{Title: "  probes that came, per second", Sample: "probes per second, http"},
	{Title: "CPU, each pod with a gRPC probe a second, of a core", Sample: "CPU with a probe a second, grpc", Unit: table.Percent},
	{Title: "  probes that came, per second", Sample: "probes per second, grpc"},
	{Title: "API requests per minute at rest", Sample: "API requests per minute at rest"},
	{Title: "API requests per pod start", Sample: "API requests per pod start"},
	{Title: "CRI calls per minute at rest", Short: true, Sample: "CRI calls per minute at rest"},
	{Title: "CRI calls per pod deletion", Sample: "CRI calls per pod deletion"},
	{Title: "goroutines with all pods", Sample: "go_goroutines"},
	{Title: "heap in use with all pods", Sample: "go_memstats_heap_inuse_bytes", Unit: table.MiB},
	{Title: "binary, stripped", Short: true, Sample: "binary", Unit: table.MiB, Target: 0.6},
	{Title: "Go packages", Sample: "packages", Target: 0.75},
}
