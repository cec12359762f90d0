package agenttest

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// declared returns the names of all registered metrics. Gather would omit metrics that have no value yet, and a registry has no descriptions of
// what is in a bundle.
func declared(t *testing.T, reg *prometheus.Registry) []string {
	t.Helper()
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	all := prometheus.NewRegistry()
	alone := each{all}
	if _, err := stats.NewMetrics(stats.MetricsConfig{Registerer: alone, Version: "v1", Gates: func() []stats.Gate { return nil }}); err != nil {
		t.Fatal(err)
	}
	if _, err := stats.NewAPICalls(stats.APIConfig{Registerer: alone}); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, from := range []*prometheus.Registry{reg, all} {
		descs := make(chan *prometheus.Desc)
		go func() { from.Describe(descs); close(descs) }()
		for d := range descs {
			if found := name.FindStringSubmatch(d.String())[1]; !slices.Contains(out, found) {
				out = append(out, found)
			}
		}
	}
	return out
}

// each is a Registerer that registers the collectors of a bundle one by one, so that they are described.
type each struct{ prometheus.Registerer }

// Register registers a collector, or those of a bundle.
func (e each) Register(c prometheus.Collector) error {
	b, ok := c.(stats.Bundle)
	if !ok {
		return e.Registerer.Register(c)
	}
	for _, c := range b {
		if err := e.Registerer.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// moved returns the names of the metrics that have counted, measured or observed something.
func moved(t *testing.T, reg *prometheus.Registry) map[string]bool {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range families {
		out[f.GetName()] = slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
			return m.GetCounter().GetValue()+m.GetGauge().GetValue() > 0 || m.GetHistogram().GetSampleCount() > 0
		})
	}
	return out
}

// Each declared metric changes in a run with starts, failures, probes and pulls.
func TestEveryMetricMoves(t *testing.T) {
	t.Parallel()
	still := map[string]string{
		"kubelet_pleg_discard_events":                                "nothing is ever dropped",
		"wherry_work_waiting":                                        "the simulated machine bears it all; busy_test.go",
		"wherry_pods_measured_in_part":                               "a simulated machine measures everything; agent inpart_test.go",
		"wherry_hung_pods":                                           "nothing hangs for ten seconds; internal/edge/pleg hung_test.go",
		"kubelet_imagemanager_image_mustpull_checks_total":           "a simulated machine keeps no records of pulls; internal/edge/image access_test.go",
		"kubelet_evictions":                                          "the machine does not run short; eviction_test.go",
		"kubelet_eviction_stats_age_seconds":                         "the machine does not run short; eviction_test.go",
		"kubelet_image_garbage_collected_total":                      "no image is old, and the disk is large; images_test.go",
		"kubelet_credential_provider_plugin_duration":                "the node has no plugins; internal/edge/credplugin",
		"wherry_trace_spans_dropped_total":                           "nothing is traced; internal/edge/trace",
		"csi_operations_seconds":                                     "a simulated machine has no drivers; internal/edge/csi",
		"storage_operation_duration_seconds":                         "a simulated machine mounts nothing; internal/edge/volume operations_test.go",
		"volume_operation_total_seconds":                             "a simulated machine mounts nothing; podmetrics_test.go",
		"kubelet_volume_metric_collection_duration_seconds":          "a simulated machine has no volumes to measure; podmetrics_test.go",
		"storage_operation_errors_total":                             "a simulated machine mounts nothing; internal/edge/volume operations_test.go",
		"kubelet_node_config_error":                                  "the configuration does not change; reconfigure_test.go",
		"kubelet_credential_provider_config_info":                    "the node has no plugins; internal/edge/credplugin",
		"kubelet_credential_provider_plugin_errors_total":            "the node has no plugins; internal/edge/credplugin",
		"kubelet_cgroup_manager_duration_seconds":                    "a simulated machine has no cgroups; internal/edge/cgroup",
		"kubelet_orphan_pod_cleaned_volumes":                         "nothing is left of a pod that no source has; syncloop orphans_test.go",
		"kubelet_orphan_pod_cleaned_volumes_errors":                  "nothing is left of a pod that no source has; syncloop orphans_test.go",
		"kubelet_orphaned_runtime_pods_total":                        "no pod is deleted while no agent runs; podmetrics_test.go",
		"kubelet_preemptions":                                        "no critical pod needs room; podmetrics_test.go",
		"kubelet_container_requested_resizes_total":                  "no pod is resized; podmetrics_test.go",
		"kubelet_pod_deferred_accepted_resizes_total":                "no pod is resized; podmetrics_test.go",
		"kubelet_pod_infeasible_resizes_total":                       "no pod is resized; podmetrics_test.go",
		"kubelet_pod_resize_duration_milliseconds":                   "no pod is resized; podmetrics_test.go",
		"kubelet_image_volume_requested_total":                       "no pod has image volumes; internal/node/perform",
		"kubelet_image_volume_mounted_succeed_total":                 "no pod has image volumes; internal/node/perform",
		"kubelet_image_volume_mounted_errors_total":                  "no pod has image volumes; internal/node/perform",
		"kubelet_pod_watch_events_dropped_total":                     "no client watches the pods; internal/edge/podsapi",
		"kubelet_sleep_action_terminated_early_total":                "no hook sleeps; internal/node/perform hook_test.go",
		"kubelet_lifecycle_handler_http_fallbacks_total":             "no hook uses HTTPS; internal/node/perform hook_test.go",
		"kubelet_evented_pleg_connection_error_count":                "the runtime does not go away; internal/edge/pleg",
		"kubelet_certificate_manager_client_expiration_renew_errors": "a simulated node has no certificates; internal/edge/identity",
		"kubelet_certificate_manager_server_rotation_seconds":        "a simulated node has no certificates; internal/edge/identity",
		"kubelet_server_expiration_renew_errors":                     "a simulated node has no certificates; internal/edge/identity",
		"rest_client_rate_limiter_duration_seconds":                  "its client has no limit; internal/base/kubeclient metered_test.go",
		"rest_client_request_retries_total":                          "no request is repeated; internal/base/kubeclient metered_test.go",
		"apiserver_delegated_authn_request_total":                    "nobody asks the node; agent tally_test.go",
		"apiserver_delegated_authn_request_duration_seconds":         "nobody asks the node; agent tally_test.go",
		"apiserver_delegated_authz_request_total":                    "nobody asks the node; agent tally_test.go",
		"apiserver_delegated_authz_request_duration_seconds":         "nobody asks the node; agent tally_test.go",
	}
	reg := prometheus.NewRegistry()
	cfg, files := statics(t, Config{Runtime: simcri.Config{Latency: latencies()}})
	cfg.Deps = func(d *agent.Deps) { d.Metrics = reg }
	Run(t, cfg, func(w *World) {
		w.Runtime.Inject(simcri.Fault{Method: "RunPodSandbox", Pod: "a", Times: 1})
		w.Runtime.Inject(simcri.Fault{Method: "CreateContainer", Pod: "a", Times: 1})
		w.Runtime.Inject(simcri.Fault{Method: "RunPodSandbox", Pod: "own", Times: 1})
		w.Create(Pod("a", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "registry.example/init:1"}}
			p.Spec.Containers[0].ReadinessProbe = httpProbe(5, 1)
		}, Annotate(simcri.AnnotationRunFor+".init", "1s")))
		w.Create(Pod("own", func(p *v1.Pod) { p.Spec.HostUsers = new(false) }))
		w.Create(Pod("big", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
		}))
		w.WaitPhase("big", v1.PodFailed)
		w.WaitReady("a", "own")
		w.Kill("a", "main", 1, "Error")
		// The manifest is removed and put back, so that the static pod appears again while it is still ending.
		w.Runtime.Inject(simcri.Fault{Method: "StopPodSandbox", Pod: webOnNode, Effect: simcri.Slow, Delay: 5 * time.Second})
		pulls := w.Runtime.Inject(simcri.Fault{Method: "PullImage", Container: "registry.example/web:1"})
		files.write("web.yaml", manifest("web", "registry.example/web:1"))
		w.Await("the static pod", 5*time.Second, func() bool { return w.Kube.Pod(Namespace, webOnNode) != nil })
		time.Sleep(time.Second)
		files.remove("web.yaml")
		time.Sleep(3 * time.Second)
		pulls()
		files.write("web.yaml", manifest("web", "registry.example/web:1"))
		w.Await("the static pod to run again", time.Minute, func() bool { return w.running(webOnNode) != "" })
		time.Sleep(5 * time.Minute)
		w.Delete("a", -1)
		w.WaitGone("a")
		names, moved := declared(t, reg), moved(t, reg)
		for _, name := range names {
			switch why, rests := still[name]; {
			case !moved[name] && !rests:
				t.Errorf("%s is declared and never changes", name)
			case moved[name] && rests:
				t.Errorf("%s changes: the excuse %q is out of date", name, why)
			}
		}
		if len(names) < 80 {
			t.Errorf("only %d names", len(names))
		}
	})
}

// If a pod asks for cluster DNS on a node that has no cluster DNS configured, the pod gets the DNS settings of the node. One event about
// the pod and one about the Node report this.
func TestMissingClusterDNS(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("a", func(p *v1.Pod) { p.Spec.DNSPolicy = v1.DNSClusterFirst }))
		w.WaitReady("a")
		hasEvent := func(namespace, name, text string) bool {
			return slices.ContainsFunc(w.Kube.Events(namespace, name), func(e *v1.Event) bool {
				return e.Reason == "MissingClusterDNS" && e.Type == v1.EventTypeWarning && e.Message == text
			})
		}
		const text = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`
		who := `pod: "a_default(` + string(w.Kube.Pod(Namespace, "a").UID) + `)". `
		w.Await("the pod's event", time.Minute, func() bool { return hasEvent(Namespace, "a", who+text) })
		w.Await("the node's event", time.Minute, func() bool { return hasEvent("", NodeName, text) })
	})
}
