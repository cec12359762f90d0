package integration

import (
	"fmt"
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
	v1 "k8s.io/api/core/v1"
)

// mayLack has metrics that are absent if the kernel does not count the I/O of cgroups.
var mayLack = []string{"container_fs_reads_bytes_total", "container_fs_writes_bytes_total"}

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

// A real node that has done a bit of everything has all metrics that the dashboards and alerts of kubernetes-mixin use, and the metrics that only a real machine can have: of
// certificates, cgroups, logs, mounts, the start of the node and the reviews by the API server.
func TestMetricsOfARealNode(t *testing.T) {
	s := newSpace(t)
	s.pod("a", `
containers:
- name: main
  image: $busybox
  command: [sleep, "100000"]
  resources: {limits: {cpu: 500m}}
  readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}`)
	s.apply(fmt.Sprintf(boundClaim, s.name, fmt.Sprintf(localSource, s.TempDir(), s.env.node.Name)))
	t.Cleanup(func() { s.kubectl("delete", "pv", s.name, "--wait=false") })
	s.pod("claims", claimingPod, onNode(s.env.node))
	s.pod("lacks", `
volumes: [{name: v, secret: {secretName: nosuch}}]
containers: [{name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}]}]`, onNode(s.env.node))
	s.pod("nowhere", `containers: [{name: main, image: "registry.invalid/none:1"}]`, onNode(s.env.node))
	s.pod("grows", `
volumes: [{name: cache, emptyDir: {sizeLimit: 1Mi}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'head -c 3000000 /dev/zero > /cache/file; sleep 100000']
  volumeMounts: [{name: cache, mountPath: /cache}]`, onNode(s.env.node))
	s.ready("a")
	s.ready("claims")
	s.event("lacks", "FailedMount", "nosuch")
	s.event("nowhere", "Failed", "registry.invalid")
	s.ended("grows", v1.PodFailed)
	time.Sleep(3 * time.Second)                                                        // probes and the runtime's statistics exist only after some seconds
	s.kubectl("get", "--raw", "/api/v1/nodes/"+s.env.node.Name+"/proxy/stats/summary") // measures the logs, which /metrics does not
	pages := s.pages()
	has := func(name string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(pages)), func(at string) bool { return strings.HasSuffix(at, " "+name) })
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "internal", "edge", "stats", "testdata", "mixin.txt"))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for line := range strings.Lines(string(raw)) {
		name, _, _ := strings.Cut(line, " ")
		if name == "#" {
			continue
		}
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, part)
		}
		asked++
		if !has(name) && !slices.Contains(mayLack, name) {
			t.Errorf("the mixin asks for %s, and the node does not serve it", name)
		}
	}
	if asked < 50 {
		t.Errorf("the mixin asks for %d names only", asked)
	}
	for _, name := range []string{
		"kubelet_cgroup_version", "kubelet_cgroup_manager_duration_seconds", "kubelet_pod_start_sli_duration_seconds", "kubelet_node_startup_duration_seconds",
		"kubelet_node_startup_pre_kubelet_duration_seconds", "apiserver_delegated_authz_request_total", "rest_client_request_size_bytes",
		"rest_client_rate_limiter_duration_seconds", "kubelet_working_pods", "kubernetes_feature_enabled", "machine_cpu_cores",
		"kubelet_container_log_filesystem_used_bytes", "kubelet_volume_metric_collection_duration_seconds", "volume_operation_total_seconds",
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
