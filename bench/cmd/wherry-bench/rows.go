package main

import (
	"strconv"
	"strings"

	"github.com/wherry-node/wherry/bench/internal/table"
)

// These are the names of the arms. An arm is one of the ways to do the same work that the benchmark compares: bare CRI calls, the least
// that any node agent must do (limit), upstream's kubelet, and Wherry.
const (
	bare     = "bare CRI"
	limit    = "limit"
	upstream = "upstream"
	wherry   = "wherry"
)

// arms are the arms in the order of the columns.
var arms = []string{bare, limit, upstream, wherry}

// rows returns the rows of the table, with numbers in place of the words ALL, FIFTH and REST (see allRows). pods is the number of pods
// that start at once.
func rows(pods int) []table.Row {
	numbers := strings.NewReplacer("ALL", strconv.Itoa(pods), "FIFTH", strconv.Itoa(pods/5), "REST", strconv.Itoa(pods-pods/5))
	out := make([]table.Row, len(allRows))
	for i, r := range allRows {
		r.Title, r.Sample = numbers.Replace(r.Title), numbers.Replace(r.Sample)
		out[i] = r
	}
	return out
}

// allRows are the rows of the table, in this order. In titles and sample names, the word ALL stands for the number of pods that start at
// once, FIFTH for a fifth of that number, and REST for the other four fifths. Samples without a row appear only in the file that -json
// writes.
var allRows = []table.Row{
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
	{Title: "pod with a CSI volume, create to Ready, p50", Short: true, Sample: "one CSI volume, create to Ready", Unit: table.Milliseconds, Target: 0.5},
	{Title: "pod with a CSI volume, delete (grace 1 s) to gone, p50", Sample: "one CSI volume, delete to gone", Unit: table.Milliseconds},
	{Title: "pod with ten volumes of three kinds, create to Ready, p50", Sample: "ten volumes of three kinds, create to Ready", Unit: table.Milliseconds, Target: 0.4},
	{Title: "pod with ten volumes of three kinds, delete (grace 1 s) to gone, p50", Sample: "ten volumes of three kinds, delete to gone", Unit: table.Milliseconds},
	{Title: "50 pods with a CSI volume each at once, total", Sample: "pods with a CSI volume at once, create to Ready, total", Unit: table.Seconds},
	{Title: "50 pods with a CSI volume each deleted (grace 1 s), total", Sample: "pods with a CSI volume, delete to gone, total", Unit: table.Seconds, Target: 0.6},
	{Title: "CPU with 20 pods without volumes at rest, of a core", Sample: "0 CSI volumes, CPU at rest", Unit: table.Percent},
	{Title: "CPU with 20 pods with 200 CSI volumes at rest, of a core", Sample: "200 CSI volumes, CPU at rest", Unit: table.Percent},
	{Title: "  calls of the CSI driver per minute", Sample: "200 CSI volumes, calls of the driver per minute"},
	{Title: "RSS with 20 pods without volumes", Sample: "RSS, 0 CSI volumes", Unit: table.MiB},
	{Title: "RSS with 20 pods with 200 CSI volumes", Sample: "RSS, 200 CSI volumes", Unit: table.MiB},
	{Title: "pods at once with an exec readiness probe a second, total", Short: true, Sample: "probed pods at once, create to Ready, total", Unit: table.Seconds, Target: 0.7},
	{Title: "pods at once with an exec readiness probe a second, p50 of a pod", Sample: "probed pods at once, create to Ready, each", Unit: table.Seconds},
	{Title: "pods at once with an exec readiness probe a second, p99 of a pod", Sample: "probed pods at once, create to Ready, each", Unit: table.Seconds, Quantile: 0.99},
	{Title: "pods at once beside as many with an exec readiness probe a second, total", Sample: "pods at once beside as many probed pods, create to Ready, total", Unit: table.Seconds, Target: 0.6},
	{Title: "pods at once beside as many with an exec readiness probe a second, p50 of a pod", Sample: "pods at once beside as many probed pods, create to Ready, each", Unit: table.Seconds},
	{Title: "one pod beside ALL probed pods, create to Ready, p50", Short: true, Sample: "one pod beside ALL probed pods, create to Ready", Unit: table.Milliseconds, Target: 0.5},
	{Title: "one pod beside ALL probed pods, delete (grace 1 s) to gone, p50", Sample: "one pod beside ALL probed pods, delete to gone", Unit: table.Milliseconds, Target: 0.5},
	{Title: "kubectl exec beside ALL probed pods, first byte, p50", Sample: "exec beside ALL probed pods, first byte", Unit: table.Milliseconds, Target: 0.5},
	{Title: "kubectl logs beside ALL probed pods, first byte, p50", Sample: "logs beside ALL probed pods, first byte", Unit: table.Milliseconds, Target: 0.5},
	{Title: "one pod beside REST of these pods that are deleted by force, create to Ready", Sample: "one pod beside REST pods that are deleted by force, create to Ready", Unit: table.Milliseconds},
	{Title: "one pod beside FIFTH probed pods, create to Ready, p50", Sample: "one pod beside FIFTH probed pods, create to Ready", Unit: table.Milliseconds},
	{Title: "one pod beside FIFTH probed pods, delete (grace 1 s) to gone, p50", Sample: "one pod beside FIFTH probed pods, delete to gone", Unit: table.Milliseconds},
	{Title: "kubectl exec beside FIFTH probed pods, first byte, p50", Sample: "exec beside FIFTH probed pods, first byte", Unit: table.Milliseconds},
	{Title: "kubectl logs beside FIFTH probed pods, first byte, p50", Sample: "logs beside FIFTH probed pods, first byte", Unit: table.Milliseconds},
	{Title: "one pod beside ALL pods that crash-loop, create to Ready, p50", Sample: "one pod beside pods that crash-loop, create to Ready", Unit: table.Milliseconds},
	{Title: "one pod beside ALL pods that crash-loop, delete (grace 1 s) to gone, p50", Sample: "one pod beside pods that crash-loop, delete to gone", Unit: table.Milliseconds},
	{Title: "one pod beside containers that write logs, create to Ready, p50", Sample: "one pod beside containers that write logs, create to Ready", Unit: table.Milliseconds},
	{Title: "one pod beside containers that write logs, delete (grace 1 s) to gone, p50", Sample: "one pod beside containers that write logs, delete to gone", Unit: table.Milliseconds},
	{Title: "one pod beside an image that is pulled and unpacked, create to Ready, p50", Sample: "one pod beside an image that is pulled, create to Ready", Unit: table.Milliseconds},
	{Title: "one pod beside an image that is pulled and unpacked, delete (grace 1 s) to gone, p50", Sample: "one pod beside an image that is pulled, delete to gone", Unit: table.Milliseconds},
	{Title: "  the pod whose image of 256 MiB is pulled, create to Ready, p50", Sample: "pod with a large image, create to Ready", Unit: table.Seconds},
	{Title: "one pod while the API server answers 200 ms late, create to Ready, p50", Sample: "one pod while the API server answers late, create to Ready", Unit: table.Milliseconds},
	{Title: "one pod while the API server answers 200 ms late, delete (grace 1 s) to gone, p50", Sample: "one pod while the API server answers late, delete to gone", Unit: table.Milliseconds},
	{Title: "half as many pods at once while the API server answers 200 ms late, total", Sample: "pods at once while the API server answers late, create to Ready, total", Unit: table.Seconds},
	{Title: "start to Ready while the API server answers 200 ms late", Sample: "start to Ready while the API server answers late", Unit: table.Milliseconds},
	{Title: "a pod eats 30 MB/s of memory, from the threshold of eviction to free, p50", Short: true, Sample: "a pod eats 30 MB/s, threshold to free", Unit: table.Seconds},
	{Title: "  of these pods, killed by the kernel", Sample: "a pod eats 30 MB/s, killed by the kernel, %", Unit: table.Percent},
	{Title: "a pod eats 100 MB/s of memory, from the threshold of eviction to free, p50", Sample: "a pod eats 100 MB/s, threshold to free", Unit: table.Seconds},
	{Title: "  of these pods, killed by the kernel", Sample: "a pod eats 100 MB/s, killed by the kernel, %", Unit: table.Percent},
	{Title: "a disk is short, and 200 unused images are removed, to the last one", Sample: "a disk is short, 200 images are removed, to the last image", Unit: table.Seconds},
	{Title: "  to the end of DiskPressure in the API", Sample: "a disk is short, 200 images are removed, to no DiskPressure", Unit: table.Seconds},
	{Title: "  CPU time of the agent", Sample: "a disk is short, 200 images are removed, CPU, agent", Unit: table.Milliseconds},
	{Title: "  CPU time of containerd", Sample: "a disk is short, 200 images are removed, CPU, containerd", Unit: table.Milliseconds},
	{Title: "  CRI calls", Sample: "a disk is short, 200 images are removed, CRI calls"},
	{Title: "crowded node, half of its pods at once, total", Sample: "crowded, half, create to Ready, total", Unit: table.Seconds},
	{Title: "crowded node, half of its pods at once, p50 of a pod", Sample: "crowded, half, create to Ready, each", Unit: table.Seconds},
	{Title: "crowded node, the other half beside them, total", Sample: "crowded, all, create to Ready, total", Unit: table.Seconds},
	{Title: "crowded node, the other half beside them, p50 of a pod", Sample: "crowded, all, create to Ready, each", Unit: table.Seconds},
	{Title: "crowded node, RSS with half of its pods", Sample: "RSS, crowded, half", Unit: table.MiB},
	{Title: "crowded node, RSS with all of its pods", Sample: "RSS, crowded, all", Unit: table.MiB, Target: 0.3},
	{Title: "crowded node, CPU with half of its pods at rest, of a core", Sample: "crowded, half, CPU at rest", Unit: table.Percent},
	{Title: "crowded node, CPU with all of its pods at rest, of a core", Sample: "crowded, all, CPU at rest", Unit: table.Percent, Target: 0.02},
	{Title: "crowded node, restart with half of its pods, to Ready", Sample: "crowded, half, restart to Ready", Unit: table.Milliseconds},
	{Title: "crowded node, restart with all of its pods, to Ready", Sample: "crowded, all, restart to Ready", Unit: table.Milliseconds, Target: 0.1},
	{Title: "crowded node, all of its pods deleted (grace 1 s), total", Sample: "crowded, delete to gone, total", Unit: table.Seconds},
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
	{Title: "a command that does nothing, by ExecSync, p50", Sample: "ExecSync, one after another", Unit: table.Milliseconds},
	{Title: "  eight at a time, p50", Sample: "ExecSync, eight at a time", Unit: table.Milliseconds},
	{Title: "  by runc without the runtime, p50", Sample: "runc exec, one after another", Unit: table.Milliseconds},
	{Title: "  in the container's namespaces, without runc, p50", Sample: "nsenter, one after another", Unit: table.Milliseconds},
	{Title: "CPU time of ExecSync, shims and runc", Sample: "CPU per ExecSync, shims", Unit: table.Milliseconds},
	{Title: "  containerd", Sample: "CPU per ExecSync, containerd", Unit: table.Milliseconds},
	{Title: "  by runc without the runtime", Sample: "CPU per runc exec", Unit: table.Milliseconds},
	{Title: "  in the container's namespaces, without runc", Sample: "CPU per nsenter", Unit: table.Milliseconds},
	{Title: "API requests per minute at rest", Sample: "API requests per minute at rest"},
	{Title: "API requests per pod start", Sample: "API requests per pod start"},
	{Title: "CRI calls per minute at rest", Short: true, Sample: "CRI calls per minute at rest"},
	{Title: "CRI calls per pod deletion", Sample: "CRI calls per pod deletion"},
	{Title: "goroutines with all pods", Sample: "go_goroutines"},
	{Title: "heap in use with all pods", Sample: "go_memstats_heap_inuse_bytes", Unit: table.MiB},
	{Title: "binary, stripped", Short: true, Sample: "binary", Unit: table.MiB, Target: 0.6},
	{Title: "Go packages", Sample: "packages", Target: 0.75},
}
