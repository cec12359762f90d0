package agenttest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
)

// reading reads the values of metrics from the registry reg.
type reading struct {
	*World
	reg *prometheus.Registry
}

// value returns the value of the series with these labels (name, value, name, value and so on); for a histogram, the number of
// observations. -1: there is no such series.
func (r *reading) value(name string, labels ...string) float64 {
	r.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(m.GetLabel())*2 == len(labels) && !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
				i := slices.Index(labels, l.GetName())
				return i < 0 || labels[i+1] != l.GetValue()
			}) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

func (r *reading) want(want float64, name string, labels ...string) {
	r.Helper()
	if got := r.value(name, labels...); got != want {
		r.Errorf("%s%v is %v, want %v", name, labels, got, want)
	}
}

// Resizes are counted by what they change and by their result. Pods are counted by the stage of their life, such as desired or active.
func TestPodMetrics(t *testing.T) {
	t.Parallel()
	r := &reading{}
	Run(t, Config{Deps: func(d *agent.Deps) { r.reg = prometheus.NewRegistry(); d.Metrics = r.reg }}, func(w *World) { // the simulated machine has 100 CPUs
		r.World = w
		w.Create(Pod("critical", cpu("10", priority(2000000000))))
		small := w.Create(Pod("small", cpu("20")))
		w.Create(Pod("big", cpu("60")))
		w.WaitReady("critical", "small", "big")
		r.want(3, "kubelet_containers_per_pod_count")
		r.want(3, "kubelet_pod_start_sli_duration_seconds")
		r.want(3, "kubelet_pod_start_total_duration_seconds")
		r.want(3, "kubelet_working_pods", "lifecycle", "sync", "config", "desired", "static", "")

		w.Witness.force(small)
		w.resize("critical", "30")
		w.awaitResizing("critical", "allocated=30 actual=30")
		r.want(1, "kubelet_container_requested_resizes_total", "resource", "cpu", "requirement", "requests", "operation", "increase")
		r.want(1, "kubelet_preemptions", "preemption_signal", "cpu")
		r.want(1, "kubelet_pod_deferred_accepted_resizes_total", "retry_trigger", "pod_terminated")
		r.want(1, "kubelet_pod_resize_duration_milliseconds", "success", "true")
		r.want(3, "kubelet_desired_pods", "static", "")
		r.want(2, "kubelet_active_pods", "static", "")
		r.want(0, "kubelet_pod_in_progress_resizes")

		w.resize("big", "500")
		w.awaitResizing("big", "PodResizePending Infeasible 2, allocated=60 actual=60")
		time.Sleep(10 * time.Minute) // in this time the node considers the resize many times, but counts it once
		r.want(1, "kubelet_pod_infeasible_resizes_total", "reason_detail", "insufficient_node_allocatable")
		r.want(1, "kubelet_pod_pending_resizes", "reason", "infeasible")

		p := w.Kube.Pod(Namespace, "big").DeepCopy()
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i:1"}}}
		if _, err := w.Admin.CoreV1().Pods(Namespace).UpdateEphemeralContainers(context.Background(), "big", p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Await("the ephemeral container is counted", time.Minute, func() bool { return r.value("kubelet_managed_ephemeral_containers") == 1 })
		r.want(0, "kubelet_orphaned_runtime_pods_total")
	})
}

// A pod that is deleted by force while no agent runs is counted once, as an orphan in the runtime. A pod that this agent has seen before is
// not counted as an orphan.
func TestOrphansAreCounted(t *testing.T) {
	t.Parallel()
	r := &reading{}
	Run(t, Config{Deps: func(d *agent.Deps) { r.reg = prometheus.NewRegistry(); d.Metrics = r.reg }}, func(w *World) {
		r.World = w
		w.Create(Pod("a"))
		w.Create(Pod("b"))
		w.WaitReady("a", "b")
		w.Delete("b", 0)
		w.WaitGone("b")
		r.want(0, "kubelet_orphaned_runtime_pods_total")
		w.StopAgent()
		w.Delete("a", 0)
		w.StartAgent()
		w.Await("the orphan is counted", time.Minute, func() bool { return r.value("kubelet_orphaned_runtime_pods_total") == 1 })
		time.Sleep(10 * time.Minute)
		r.want(1, "kubelet_orphaned_runtime_pods_total")
		r.want(0, "kubelet_containers_per_pod_count")
	})
}

// The time of a mount includes the wait for the attachment of the volume. The time of each measurement of a volume is shown with the CSI driver
// that was asked.
func TestVolumeTimes(t *testing.T) {
	t.Parallel()
	r := &reading{}
	disks := diskConfig()
	disks.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 10, Used: 1, Available: 9}}
	Run(t, Config{CSI: disks, Deps: func(d *agent.Deps) { r.reg = prometheus.NewRegistry(); d.Metrics = r.reg }}, func(w *World) {
		r.World = w
		w.createDisk("data", diskDriver, true)
		w.Create(Pod("db", withClaim("data")))
		const waits = 7 * time.Minute
		time.Sleep(waits)
		mount := []string{"plugin_name", "kubernetes.io/csi:" + diskDriver, "operation_name", "overall_volume_mount"}
		r.want(-1, "volume_operation_total_seconds", mount...)
		w.attach("data", "")
		w.WaitReady("db")
		r.want(1, "volume_operation_total_seconds", mount...)
		families, err := r.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "volume_operation_total_seconds" {
				continue
			}
			if sum := f.GetMetric()[0].GetHistogram().GetSampleSum(); sum < waits.Seconds() {
				t.Errorf("the mount took %v seconds, want at least the %v for which the volume was not attached", sum, waits)
			}
		}
		measured := func() float64 {
			return r.value("kubelet_volume_metric_collection_duration_seconds", "metric_source", diskDriver)
		}
		w.Await("a scrape measures the volume", 2*time.Minute, func() bool { return measured() == 1 })
		time.Sleep(10 * time.Second)
		if n := measured(); n != 1 {
			t.Errorf("%v measurements within 10 seconds", n)
		}
	})
}
