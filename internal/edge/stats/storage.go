package stats

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// VolumeCount is a number of volumes of the node's pods.
type VolumeCount struct {
	// Plugin is the name of upstream's plugin for the kind of volume, for example kubernetes.io/secret. For a volume of a CSI driver the
	// name of the driver follows: kubernetes.io/csi:disks.example.com. "N/A": the kind is not known yet, because a claim is not bound.
	Plugin string
	// Desired is how many volumes the pods need, and Actual how many the node has set up and not taken down yet.
	Desired, Actual int
}

// PodCertificates is the number of podCertificate sources in the volumes of the node's pods that have the same signer and state.
type PodCertificates struct {
	Signer string
	State  string // not_yet_issued, fresh, overdue_for_refresh, expired, denied or failed
	Count  int
}

// storage contains the metrics of volumes.
type storage struct {
	operations *distributions
	errors     *amounts
	overall    *distributions
	measured   *distributions
	csi        *distributions
}

func newStorage() storage {
	return storage{
		operations: histograms("storage_operation_duration_seconds", "Seconds that an operation on a volume took, with its waits, by the volume's plugin. The volumes of a pod that are not network volumes are unmounted in one operation for each plugin",
			volumeBuckets, "volume_plugin", "operation_name", "status", "migrated"),
		// Upstream's kubelet no longer has this counter, but kubernetes-mixin's dashboard still shows it.
		errors: counters("storage_operation_errors_total", "Operations on volumes that failed, by the volume's plugin", "volume_plugin", "operation_name"),
		overall: histograms("volume_operation_total_seconds", "Seconds from the beginning of the first try to mount a volume until it was mounted, with all tries that failed and the waits between them, by the volume's plugin",
			volumeBuckets, "plugin_name", "operation_name"),
		measured: histograms("kubelet_volume_metric_collection_duration_seconds", "Seconds that it took to measure how full a volume is, by how it was measured: du (a walk through the directory), statfs (the numbers of its file system), or the CSI driver that was asked",
			prometheus.DefBuckets, "metric_source"),
		csi: histograms("csi_operations_seconds", "Seconds that calls to CSI drivers took, by the status code of the answer",
			volumeBuckets, "driver_name", "method_name", "grpc_status_code", "migrated"),
	}
}

func (s *storage) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.operations, s.errors, s.overall, s.measured, s.csi}
}

// VolumeOperated records an operation on a volume, such as volume_mount. migrated means that the volume is one of a former in-tree plugin,
// which a CSI driver serves now. The caller bounds the names of plugins and operations.
func (m *Metrics) VolumeOperated(plugin, operation string, migrated bool, took time.Duration, err error) {
	if m == nil {
		return
	}
	status := "success"
	if err != nil {
		status = "fail-unknown"
		m.storage.errors.WithLabelValues(plugin, operation).Inc()
	}
	m.storage.operations.WithLabelValues(plugin, operation, status, strconv.FormatBool(migrated)).Observe(took.Seconds())
}

// VolumeMounted records how long it took until a volume was mounted, from the beginning of the first try. The caller bounds the names of
// plugins.
func (m *Metrics) VolumeMounted(plugin string, overall time.Duration) {
	if m != nil {
		m.storage.overall.WithLabelValues(plugin, "overall_volume_mount").Observe(overall.Seconds())
	}
}

// VolumeMeasured records how long it took to measure how full a volume is. source is du, statfs, or the name of a CSI driver. The caller bounds the
// names of drivers.
func (m *Metrics) VolumeMeasured(source string, took time.Duration) {
	if m != nil {
		m.storage.measured.WithLabelValues(source).Observe(took.Seconds())
	}
}

// DriverCalled records a call to a CSI driver: the name of the method, such as NodePublishVolume, and the status code of the answer, such as
// OK or DeadlineExceeded.
func (m *Metrics) DriverCalled(driver, method, code string, took time.Duration) {
	if m != nil {
		m.storage.csi.WithLabelValues(driver, "/csi.v1.Node/"+method, code, "false").Observe(took.Seconds())
	}
}

func countVolumes(count func() []VolumeCount, out sink) {
	total := newFamily(prometheus.GaugeValue, "volume_manager_total_volumes", "Volumes that the pods of the node need (desired_state_of_world), and volumes that the node has set up (actual_state_of_world)", "plugin_name", "state")
	for _, c := range count() {
		out.put(total, time.Time{}, float64(c.Desired), c.Plugin, "desired_state_of_world")
		out.put(total, time.Time{}, float64(c.Actual), c.Plugin, "actual_state_of_world")
	}
}

func countPodCertificates(counts []PodCertificates, out sink) {
	f := newFamily(prometheus.GaugeValue, "kubelet_podcertificate_states", "Certificates that the volumes of the node's pods project, by signer and by state: not_yet_issued, fresh, overdue_for_refresh (the renewal was due more than 10 minutes ago), expired, denied or failed",
		"signer_name", "state")
	for _, c := range counts {
		out.put(f, time.Time{}, float64(c.Count), c.Signer, c.State)
	}
}
