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

// storage contains the metrics of volumes.
type storage struct {
	operations *distributions
	errors     *amounts
	csi        *distributions
}

func newStorage() storage {
	return storage{
		operations: histograms("storage_operation_duration_seconds", "Seconds that an operation on a volume took, with its waits, by the volume's plugin. The volumes of a pod that are not network volumes are unmounted in one operation for each plugin",
			volumeBuckets, "volume_plugin", "operation_name", "status", "migrated"),
		// Upstream's kubelet no longer has this counter, but kubernetes-mixin's dashboard still shows it.
		errors: counters("storage_operation_errors_total", "Operations on volumes that failed, by the volume's plugin", "volume_plugin", "operation_name"),
		csi: histograms("csi_operations_seconds", "Seconds that calls to CSI drivers took, by the status code of the answer",
			volumeBuckets, "driver_name", "method_name", "grpc_status_code", "migrated"),
	}
}

func (s *storage) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.operations, s.errors, s.csi}
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
