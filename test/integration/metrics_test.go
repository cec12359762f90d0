package integration

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// absent has metrics that kubernetes-mixin uses, but that this node lacks because it has no volumes and no evictions.
var absent = []string{
	"kubelet_evictions", // appears with the first eviction
	"kubelet_node_config_error",
	"kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes", "kubelet_volume_stats_inodes", "kubelet_volume_stats_inodes_free",
	"kubelet_volume_stats_inodes_used", "kubelet_volume_stats_used_bytes", "storage_operation_duration_seconds", "storage_operation_errors_total",
	"volume_manager_total_volumes",
}

// mayLack has metrics that may be absent: if nothing has failed, or if the kernel does not count the I/O of cgroups.
var mayLack = []string{"kubelet_runtime_operations_errors_total", "container_fs_reads_bytes_total", "container_fs_writes_bytes_total"}

// pages reads the metrics of the node with Prometheus' own parser. A key is the path of the page and the name of the metric, such as
// "/metrics kubelet_node_name".
func (s *space) pages() map[string]*dto.MetricFamily {
	s.Helper()
	out := map[string]*dto.MetricFamily{}
	for _, page := range []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"} {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(s.kubectl("get", "--raw", "/api/v1/nodes/"+s.env.node.Name+"/proxy"+page)))
		if err != nil {
			s.Errorf("%s: %v", page, err)
		}
		for name, f := range families {
			out[page+" "+name] = f
		}
	}
	return out
}

// A real node has the metrics that the dashboards and alerts of kubernetes-mixin use, and the metrics that only a real machine can have: of
// certificates, cgroups, the start of the node and the reviews by the API server.
func TestMetricsOfARealNode(t *testing.T) {
	s := newSpace(t)
	s.pod("a", `
containers:
- name: main
  image: $busybox
  command: [sleep, "100000"]
  resources: {limits: {cpu: 500m}}
  readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}`)
	s.ready("a")
	time.Sleep(3 * time.Second) // probes and the runtime's statistics exist only after some seconds
	pages := s.pages()
	has := func(name string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(pages)), func(at string) bool { return strings.HasSuffix(at, " "+name) })
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "internal", "edge", "stats", "testdata", "mixin.txt"))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for name := range strings.Lines(string(raw)) {
		if name = strings.TrimSpace(name); name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, part)
		}
		asked++
		if expected := !slices.Contains(absent, name); expected && !has(name) && !slices.Contains(mayLack, name) {
			t.Errorf("the mixin asks for %s, and the node does not serve it", name)
		} else if !expected && name != "kubelet_evictions" && has(name) {
			t.Errorf("%s is served: it is no exception any more", name)
		}
	}
	if asked < 50 {
		t.Errorf("the mixin asks for %d names only", asked)
	}
	for _, name := range []string{
		"kubelet_cgroup_version", "kubelet_cgroup_manager_duration_seconds", "kubelet_pod_start_sli_duration_seconds", "kubelet_node_startup_duration_seconds",
		"kubelet_node_startup_pre_kubelet_duration_seconds", "apiserver_delegated_authz_request_total", "rest_client_request_size_bytes",
		"rest_client_rate_limiter_duration_seconds", "kubelet_working_pods", "kubernetes_feature_enabled", "machine_cpu_cores",
	} {
		if !has(name) {
			t.Errorf("the node does not serve %s", name)
		}
	}
	if ttl := pages["/metrics kubelet_certificate_manager_client_ttl_seconds"]; ttl != nil {
		if v := ttl.GetMetric()[0].GetGauge().GetValue(); v < 60 || v > 10*365*24*3600 {
			t.Errorf("the client certificate ends in %v seconds", v)
		}
	}
}
