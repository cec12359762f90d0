package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Users can reach the node's API through the API server (nodes/NAME/proxy).
func TestNodeProxy(t *testing.T) {
	s := newSpace(t)
	s.pod("seen", `containers: [{name: main, image: $busybox, command: [sh, -c, 'while :; do :; done'], resources: {limits: {cpu: 200m, memory: 32Mi}}, readinessProbe: {exec: {command: ['true']}, timeoutSeconds: 60}}]`)
	p := s.ready("seen")
	raw := func(path string) string {
		s.Helper()
		return s.kubectl("get", "--raw", "/api/v1/nodes/"+s.env.node.Name+"/proxy/"+path)
	}
	s.same("healthz", raw("healthz"), "ok")
	for path, parts := range map[string][]string{
		"configz":      {`"kubeletconfig"`, `"cgroupRoot":"/` + s.env.node.cgroup, `"podPidsLimit":300`, `"nodeStatusReportFrequency":"5m0s"`},
		"metrics":      {"\nkubelet_running_pods", "\nkubelet_node_name{", "\nprocess_resident_memory_bytes", "\ngo_goroutines"},
		"pods":         {`"kind":"PodList"`, `"name":"seen"`, string(p.UID)},
		"runningpods/": {`"kind":"PodList"`, `"name":"seen"`},
	} {
		s.contains(path, raw(path), parts...)
	}

	s.eventually("CPU and memory of the pod", func() error { // a CPU rate needs two readings
		var sum stats.Summary
		if err := json.Unmarshal([]byte(raw("stats/summary")), &sum); err != nil {
			return fatal{err}
		}
		if sum.Node.NodeName != s.env.node.Name || sum.Node.CPU == nil || sum.Node.Memory == nil || sum.Node.Fs == nil || sum.Node.Network == nil || sum.Node.Rlimit == nil {
			return fatal{fmt.Errorf("node's summary lacks something: %+v", sum.Node)}
		}
		for _, ps := range sum.Pods {
			if ps.PodRef.UID != string(p.UID) {
				continue
			}
			if len(ps.Containers) != 1 || ps.Containers[0].CPU == nil || ps.Containers[0].CPU.UsageCoreNanoSeconds == nil || *ps.Containers[0].CPU.UsageCoreNanoSeconds == 0 ||
				ps.Containers[0].CPU.UsageNanoCores == nil || *ps.Containers[0].CPU.UsageNanoCores == 0 ||
				ps.Containers[0].Memory == nil || ps.Containers[0].Memory.WorkingSetBytes == nil || *ps.Containers[0].Memory.WorkingSetBytes == 0 {
				text, _ := json.Marshal(ps)
				return fmt.Errorf("summary of the pod is %s", text)
			}
			return nil
		}
		return fmt.Errorf("summary has no pod %s", p.UID)
	})
	label := fmt.Sprintf(`container="main",namespace="%s",pod="seen"`, s.name)
	s.eventually("metrics/resource", func() error { // the endpoint returns an error if a pod of another test is deleted at that moment
		return lacks(raw("metrics/resource"), "node_cpu_usage_seconds_total ", "node_memory_working_set_bytes ",
			"container_cpu_usage_seconds_total{"+label+"} ", "container_memory_working_set_bytes{"+label+"} ", "container_start_time_seconds{"+label+"} ",
			`pod_cpu_usage_seconds_total{namespace="`+s.name+`",pod="seen"} `, "resource_scrape_error 0")
	})
	s.contains("metrics/probes", raw("metrics/probes"), `prober_probe_total{`+label+`,pod_uid="`+string(p.UID)+`",probe_type="Readiness",result="successful"} `)
	advisor := raw("metrics/cadvisor")
	for _, name := range []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_spec_memory_limit_bytes", "container_network_receive_bytes_total"} {
		if !hasSample(advisor, name, `namespace="`+s.name+`"`, `pod="seen"`) {
			t.Errorf("metrics/cadvisor lacks %s of the pod", name)
		}
	}
	s.contains("metrics/cadvisor", advisor, "machine_cpu_cores", "machine_memory_bytes")

	if _, errOut, err := s.try("get", "--raw", "/api/v1/nodes/"+s.env.node.Name+"/proxy/no/such/path"); err == nil || !strings.Contains(errOut, "NotFound") && !strings.Contains(errOut, "could not find") {
		t.Errorf("a path that is not there: %v %s", err, errOut)
	}
}

func hasSample(metrics, name string, labels ...string) bool {
	for _, line := range strings.Split(metrics, "\n") {
		if strings.HasPrefix(line, name+"{") && containsAll(line, labels) {
			return true
		}
	}
	return false
}

// The node's API refuses unknown clients. The health port answers everybody.
func TestNodePorts(t *testing.T) {
	s := newSpace(t)
	s.same("healthz", s.fetch(fmt.Sprintf("http://127.0.0.1:%d/healthz", s.env.node.health)), "ok")
	status, _, err := request(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/pods", s.env.node.health))
	if err != nil || status != http.StatusNotFound {
		t.Errorf("pods at the health port: %d, %v", status, err)
	}
	base := fmt.Sprintf("https://127.0.0.1:%d", s.env.node.port)
	for _, path := range []string{"/pods", "/metrics", "/healthz", "/run/x/y/z", "/exec/x/y/z"} {
		if status, body, err := insecure(base+path, ""); err != nil || status != http.StatusUnauthorized {
			t.Errorf("anonymous %s: %d %s %v, want 401", path, status, body, err)
		}
	}
	token := strings.TrimSpace(s.kubectl("create", "token", "default"))
	s.eventually("a service account without rights to be refused", func() error { // repeated, because a token review may fail after its timeout of 10 s
		status, body, err := insecure(base+"/pods", token)
		if err == nil && status != http.StatusForbidden {
			err = errorf("%d %s, want 403", status, body)
		}
		return err
	})
	// The test uses another account, because the agent caches the refusal of the first one for a while.
	s.kubectl("create", "serviceaccount", "reader")
	s.kubectl("create", "clusterrolebinding", s.name, "--clusterrole=system:kubelet-api-admin", "--serviceaccount="+s.name+":reader")
	t.Cleanup(func() { s.kubectl("delete", "clusterrolebinding", s.name) })
	token = strings.TrimSpace(s.kubectl("create", "token", "reader"))
	s.eventually("a service account with rights to be let in", func() error {
		status, body, err := insecure(base+"/pods", token)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, body)
		}
		var list v1.PodList
		if err == nil {
			err = json.Unmarshal([]byte(body), &list)
		}
		return err
	})
}
