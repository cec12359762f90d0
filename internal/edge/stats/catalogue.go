package stats

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// MetricsConfig configures Metrics. Registerer and NodeName are required.
type MetricsConfig struct {
	Registerer prometheus.Registerer
	NodeName   string
	Version    string // the Kubernetes version, for kubernetes_build_info
	// Pods are counted when the metrics are read; nil: kubelet_running_pods is absent.
	Pods Pods
	// Process adds process_* and go_*, which describe the whole process. Set it for only one agent of a process.
	Process bool
	// ImagePulls counts the image pulls that have not ended. It is called when the metrics are read; nil: the metrics are absent.
	ImagePulls func() ImagePulls
	// PullRecords counts the intents and records of image pulls on disk. It is called when the metrics are read; nil: the metrics are
	// absent.
	PullRecords func() (intents, records int)
	// Tally counts pods and resizes, and Startup has the times of the node's start. They are called when the metrics are
	// read; nil: these metrics are absent.
	Tally   func() Tally
	Startup func() Startup
	// PersistentVolumes measures the persistent volumes of the node's pods, each claim once. It is called when the metrics are read; nil:
	// kubelet_volume_stats_* are absent.
	PersistentVolumes func() []Volume
	// ContainerLogs returns how much disk the logs of containers use. It is called when the metrics are read, so it must not measure; nil:
	// the metric is absent.
	ContainerLogs func() []ContainerLogs
	// PodCertificates counts the certificates that pods project. It is called when the metrics are read; nil: the metric is absent.
	PodCertificates func() []PodCertificates
	// Volumes counts the volumes of the node's pods, each plugin once. It is called when the metrics are read; nil: the metric is absent.
	Volumes func() []VolumeCount
	// CgroupVersion returns 1 or 2, or 0 if it is not known; nil: the metric is absent.
	CgroupVersion func() int
	// MemoryKept returns how many bytes the kernel keeps for guaranteed and for burstable pods; nil: the metrics are absent.
	MemoryKept func() (guaranteed, burstable int64)
	// Gates returns the feature gates, always the same ones. It is called when the metrics are read; nil: the metric is absent.
	Gates func() []Gate
}

// Gate is a feature gate of Kubernetes.
type Gate struct {
	Name  string
	Stage string // ALPHA, BETA, DEPRECATED; "" for a feature that is generally available
	On    bool
}

// Metrics holds the agent's own metrics, under the names that the usual dashboards and alerts know. Its methods may be
// called concurrently and never block. Other packages use it through interfaces of their own. The methods of a nil
// *Metrics do nothing.
type Metrics struct {
	podStart, podWorkerStart, podStatusSync *distribution
	podWorker                               *distributions
	relist, relistInterval                  *distribution
	lastSeen                                *single
	discarded                               *single
	operations, operationErrors             *amounts
	operationTime                           *distributions
	sandboxTime                             *distributions
	sandboxErrors                           *amounts
	startedPods, startedPodErrors           *single
	startedOwn, startedOwnErrors            *single // counters of started pods with a user namespace of their own
	startedContainers, startedContainerErrs *amounts
	endedContainers                         *amounts
	pull                                    *distributions
	ensured, verified                       *amounts // ensured: images that pods needed; verified: checks of access to images
	evictions, rejections, restarted        *amounts
	collected                               *amounts
	probeLate, plugins, evictionAge         *distributions
	pluginErrors                            *amounts
	pluginConfig                            *amounts
	configError                             *single

	lives       lives
	resizes     resizes
	storage     storage
	networkSeen atomic.Bool // true once the metric firstNetwork has its value, which is set only once
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(cfg MetricsConfig) (*Metrics, error) {
	m := &Metrics{lives: newLives(), resizes: newResizes(), storage: newStorage()}
	m.makePods()
	m.makeRuntime()
	all := []prometheus.Collector{
		m.podWorkerStart, m.podStatusSync, m.podWorker, m.relist, m.relistInterval, m.lastSeen, m.discarded, m.operations,
		m.operationErrors, m.operationTime, m.sandboxTime, m.sandboxErrors, m.startedPods, m.startedPodErrors, m.startedOwn, m.startedOwnErrors, m.startedContainers,
		m.startedContainerErrs, m.endedContainers, m.pull, m.ensured, m.verified, m.evictions, m.evictionAge, m.collected, m.rejections, m.restarted, m.probeLate, m.plugins, m.pluginErrors, m.pluginConfig, m.configError, named(cfg.NodeName), buildInfo(cfg.Version),
	}
	all = slices.Concat(all, m.lives.collectors(), m.resizes.collectors(), m.storage.collectors())
	if cfg.Pods != nil {
		all = append(all, collector{collect: func(out sink) { countRunning(cfg.Pods, out) }})
	}
	if cfg.ImagePulls != nil {
		all = append(all, collector{collect: func(out sink) { cfg.ImagePulls().put(out) }})
	}
	if cfg.PullRecords != nil {
		all = append(all, collector{collect: func(out sink) { countPullRecords(cfg.PullRecords, out) }})
	}
	if cfg.Tally != nil {
		all = append(all, collector{collect: func(out sink) { countTally(cfg.Tally, out) }})
	}
	if cfg.Startup != nil {
		all = append(all, collector{collect: func(out sink) { countStartup(cfg.Startup, out) }})
	}
	if cfg.PersistentVolumes != nil {
		all = append(all, collector{collect: func(out sink) { countPersistentVolumes(cfg.PersistentVolumes(), out) }})
	}
	if cfg.ContainerLogs != nil {
		all = append(all, collector{collect: func(out sink) { countContainerLogs(cfg.ContainerLogs(), out) }})
	}
	if cfg.PodCertificates != nil {
		all = append(all, collector{collect: func(out sink) { countPodCertificates(cfg.PodCertificates(), out) }})
	}
	if cfg.Volumes != nil {
		all = append(all, collector{collect: func(out sink) { countVolumes(cfg.Volumes, out) }})
	}
	if cfg.CgroupVersion != nil {
		all = append(all, collector{collect: func(out sink) { countCgroupVersion(cfg.CgroupVersion, out) }})
	}
	if cfg.MemoryKept != nil {
		all = append(all, collector{collect: func(out sink) { countMemoryKept(cfg.MemoryKept, out) }})
	}
	if cfg.Gates != nil {
		all = append(all, enabled(cfg.Gates))
	}
	if cfg.Process {
		all = append(all, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	}
	return m, register(cfg.Registerer, m.podStart, all...)
}

func (m *Metrics) makePods() {
	m.podStart = histogram("kubelet_pod_start_duration_seconds", "Seconds from when the node first saw a pod until all its containers ran", podStartBuckets)
	m.podWorkerStart = histogram("kubelet_pod_worker_start_duration_seconds", "Seconds from when the node first saw a pod until its worker's first turn", prometheus.DefBuckets)
	m.podStatusSync = histogram("kubelet_pod_status_sync_duration_seconds", "Seconds from a change of a pod's status until the API server had accepted it",
		statusBuckets)
	m.podWorker = histograms("kubelet_pod_worker_duration_seconds", "Seconds that a turn of a pod's worker took", prometheus.DefBuckets, "operation_type")
	m.startedPods = counter("kubelet_started_pods_total", "Sandboxes that the agent asked the runtime to start")
	m.startedPodErrors = counter("kubelet_started_pods_errors_total", "Sandboxes that could not be started")
	m.startedOwn = counter("kubelet_started_user_namespaced_pods_total", "Sandboxes with a user namespace that the agent asked the runtime to start")
	m.startedOwnErrors = counter("kubelet_started_user_namespaced_pods_errors_total", "Pods with a user namespace whose sandbox or first containers could not be started")
	m.startedContainers = counters("kubelet_started_containers_total", "Containers that the agent asked the runtime to start", "container_type")
	m.startedContainerErrs = counters("kubelet_started_containers_errors_total", "Containers that could not be started", "container_type", "code")
	m.endedContainers = counters("kubelet_terminated_containers_total", "Containers that ended", "container_type", "exit_code", "reason")
	m.pull = histograms("kubelet_image_pull_duration_seconds", "Seconds that an image pull took, by size of the image",
		pullBuckets, "image_size_in_bytes")
	m.ensured = counters("kubelet_image_manager_ensure_image_requests_total", "Images that containers needed, by pull policy, by whether the image was present, and by whether it had to be pulled", "pull_policy", "present_locally", "pull_required")
	m.verified = counters("kubelet_imagemanager_image_mustpull_checks_total", "Checks whether a pod may use an image that is present, by result", "result")
	m.plugins = histograms("kubelet_credential_provider_plugin_duration", "Seconds that a run of a credential provider plugin took", prometheus.DefBuckets, "plugin_name")
	m.pluginErrors = counters("kubelet_credential_provider_plugin_errors_total", "Runs of credential provider plugins that failed", "plugin_name")
	m.pluginConfig = gauges("kubelet_credential_provider_config_info", "Always 1; the label has the hash of the configuration of credential provider plugins that is in use", "hash")
	m.evictions = counters("kubelet_evictions", "Pods that the node evicted, by the signal that was over its threshold", "eviction_signal")
	m.evictionAge = histograms("kubelet_eviction_stats_age_seconds", "Seconds between the measurement and the eviction of a pod, by signal", prometheus.DefBuckets, "eviction_signal")
	m.collected = counters("kubelet_image_garbage_collected_total", "Images removed because nothing used them, by reason: age or space", "reason")
	m.rejections = counters("kubelet_admission_rejections_total", "Pods that this node refused at admission, by reason", "reason")
	m.probeLate = histograms("wherry_probe_late_seconds", "Seconds from when a probe was due until it began; a late probe does not count as failed",
		lateBuckets, "probe_type")
	m.configError = gauge("kubelet_node_config_error", "1 if the configuration on disk is not valid, so that the one in effect stays; otherwise 0")
	m.restarted = counters("kubelet_restarted_pods_total", "Pods that started again with the UID of a pod that had just ended, such as a static pod whose manifest was written again", "static")
}

func (m *Metrics) makeRuntime() {
	m.relist = histogram("kubelet_pleg_relist_duration_seconds", "Seconds that a relist took: listing all pods of the runtime", prometheus.DefBuckets)
	m.relistInterval = histogram("kubelet_pleg_relist_interval_seconds", "Seconds between relists", prometheus.DefBuckets)
	m.lastSeen = gauge("kubelet_pleg_last_seen_seconds", "When the last relist succeeded, in seconds since the epoch")
	// This counter stays 0, because no event is dropped: an event only marks its pod for inspection. Dashboards expect the metric.
	m.discarded = counter("kubelet_pleg_discard_events", "Runtime events that were dropped; always 0")
	m.operations = counters("kubelet_runtime_operations_total", "Calls to the container runtime", "operation_type")
	m.operationErrors = counters("kubelet_runtime_operations_errors_total", "Calls to the container runtime that failed", "operation_type")
	m.operationTime = histograms("kubelet_runtime_operations_duration_seconds", "Seconds that calls to the container runtime took", callBuckets, "operation_type")
	m.sandboxTime = histograms("kubelet_run_podsandbox_duration_seconds", "Seconds that RunPodSandbox calls took", prometheus.DefBuckets, "runtime_handler")
	m.sandboxErrors = counters("kubelet_run_podsandbox_errors_total", "RunPodSandbox calls that failed", "runtime_handler")
}

func named(node string) prometheus.Collector {
	return &constants{describe(prometheus.GaugeValue, "kubelet_node_name", "The node's name; always 1", "node"), func(put func(float64, ...string)) { put(1, node) }}
}

// buildInfo makes kubernetes_build_info. It splits v1.36.3+wherry.0.1.0 as Kubernetes does.
func buildInfo(version string) prometheus.Collector {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return &constants{
		describe(prometheus.GaugeValue, "kubernetes_build_info", "Always 1; the labels have the version",
			"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"),
		func(put func(float64, ...string)) {
			put(1, major, minor, version, "", "", "", runtime.Version(), runtime.Compiler, runtime.GOOS+"/"+runtime.GOARCH)
		},
	}
}

// enabled creates kubernetes_feature_enabled.
func enabled(gates func() []Gate) prometheus.Collector {
	return &constants{
		describe(prometheus.GaugeValue, "kubernetes_feature_enabled", "1 if a feature gate of Kubernetes is on, 0 if it is off; the label stage is empty for a feature that is generally available",
			"name", "stage"),
		func(put func(float64, ...string)) {
			for _, gate := range gates() {
				on := 0.0
				if gate.On {
					on = 1
				}
				put(on, gate.Name, gate.Stage)
			}
		},
	}
}

func countCgroupVersion(read func() int, out sink) {
	if v := read(); v != 0 {
		out.put(newFamily(prometheus.GaugeValue, "kubelet_cgroup_version", "Version of the control groups on this machine"), time.Time{}, float64(v))
	}
}

func countMemoryKept(read func() (guaranteed, burstable int64), out sink) {
	guaranteed, burstable := read()
	for _, m := range []struct {
		name, help string
		bytes      int64
	}{
		{"kubelet_memory_qos_node_memory_min_bytes", "Bytes that the kernel always keeps for guaranteed pods (memory.min)", guaranteed},
		{"kubelet_memory_qos_node_memory_low_bytes", "Bytes that the kernel keeps for burstable pods as long as it can (memory.low)", burstable},
	} {
		out.put(newFamily(prometheus.GaugeValue, m.name, m.help), time.Time{}, float64(m.bytes))
	}
}

// ImagePulls counts image pulls that have not ended.
type ImagePulls struct {
	// Running are pulls that go on, Waiting those that wait for their turn, and Stalled those in which nothing happened for a while.
	Running, Waiting, Stalled int
	Oldest                    time.Duration // how long ago a pod first needed the oldest of them; 0: there is none
}

func (p ImagePulls) put(out sink) {
	pulls := newFamily(prometheus.GaugeValue, "wherry_image_pulls", "Image pulls that have not ended: running, waiting for their turn, or stalled, which means that no data arrived for a while", "state")
	for state, n := range map[string]int{"running": p.Running, "waiting": p.Waiting, "stalled": p.Stalled} {
		out.put(pulls, time.Time{}, float64(n), state)
	}
	out.put(newFamily(prometheus.GaugeValue, "wherry_image_pull_oldest_seconds", "Seconds since a pod first needed the oldest image pull that has not ended; 0: there is none"), time.Time{}, p.Oldest.Seconds())
}

func countPullRecords(count func() (intents, records int), out sink) {
	intents, records := count()
	out.put(newFamily(prometheus.GaugeValue, "kubelet_imagemanager_ondisk_pullintents", "Records on disk of image pulls that have begun and not ended"), time.Time{}, float64(intents))
	out.put(newFamily(prometheus.GaugeValue, "kubelet_imagemanager_ondisk_pulledrecords", "Records on disk of images that were pulled"), time.Time{}, float64(records))
}

// countRunning counts the running pods and containers when the metrics are read, so that no counter has to be updated at every
// change.
func countRunning(pods Pods, out sink) {
	running := newFamily(prometheus.GaugeValue, "kubelet_running_pods", "Pods that have a running sandbox")
	states := newFamily(prometheus.GaugeValue, "kubelet_running_containers", "Containers by state", "container_state")
	sandboxes, byState := 0, map[pod.ContainerState]int{}
	for _, o := range pods.Observed() {
		if s := o.NewestSandbox(); s != nil && s.Ready {
			sandboxes++
		}
		for i := range o.Containers {
			byState[o.Containers[i].State]++
		}
	}
	out.put(running, time.Time{}, float64(sandboxes))
	for state, n := range byState {
		out.put(states, time.Time{}, float64(n), state.String())
	}
}

// PodStarted records how long a pod took until its containers ran.
func (m *Metrics) PodStarted(took time.Duration) {
	if m != nil {
		m.podStart.Observe(took.Seconds())
	}
}

// WorkerStarted records how long a new pod waited for its first turn.
func (m *Metrics) WorkerStarted(waited time.Duration) {
	if m != nil {
		m.podWorkerStart.Observe(waited.Seconds())
	}
}

// Turn records a worker's turn. Operation is create (the first turn of a pod), sync, kill (while the pod ends) or
// terminated.
func (m *Metrics) Turn(operation string, took time.Duration) {
	if m != nil {
		m.podWorker.WithLabelValues(operation).Observe(took.Seconds())
	}
}

// StatusSent records how long it took until the API acknowledged a status.
func (m *Metrics) StatusSent(took time.Duration) {
	if m != nil {
		m.podStatusSync.Observe(took.Seconds())
	}
}

// Relisted records a relist: when it ended, how long it took, and how long after the previous one it began (zero: it is
// the first).
func (m *Metrics) Relisted(at time.Time, took, interval time.Duration) {
	if m == nil {
		return
	}
	m.relist.Observe(took.Seconds())
	if interval > 0 {
		m.relistInterval.Observe(interval.Seconds())
	}
	m.lastSeen.Set(float64(at.UnixNano()) / second)
}

// SandboxStarted records a call to start a sandbox. own means that the sandbox has a user namespace of its own.
func (m *Metrics) SandboxStarted(handler string, own bool, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.sandboxTime.WithLabelValues(handler).Observe(took.Seconds())
	m.startedPods.Inc()
	if own {
		m.startedOwn.Inc()
	}
	if err == nil {
		return
	}
	m.sandboxErrors.WithLabelValues(handler).Inc()
	m.startedPodErrors.Inc()
	if own {
		m.startedOwnErrors.Inc()
	}
}

// ContainerStarted records that a container was created and started, or failed with a reason such as CreateContainerError. kind is
// container, init_container or ephemeral_container. own means that this is the first attempt of the container and that its pod has a
// user namespace.
func (m *Metrics) ContainerStarted(kind string, own bool, reason string) {
	if m == nil {
		return
	}
	m.startedContainers.WithLabelValues(kind).Inc()
	if reason != "" {
		m.startedContainerErrs.WithLabelValues(kind, reason).Inc()
		if own {
			m.startedOwnErrors.Inc()
		}
	}
}

// ContainerEnded records that a container ended, with the reason in its status, such as Completed or OOMKilled. Exit
// codes that no process can have, and reasons that only one runtime uses, count as "other", because each pair of code
// and reason is a series for as long as the agent lives.
func (m *Metrics) ContainerEnded(kind string, exitCode int32, reason string) {
	if m == nil {
		return
	}
	code := other
	if exitCode >= 0 && exitCode <= 255 {
		code = strconv.Itoa(int(exitCode))
	}
	m.endedContainers.WithLabelValues(kind, code, endReason(reason)).Inc()
}

// ImagePulled records a pull; bytes is the image's size.
func (m *Metrics) ImagePulled(bytes uint64, took time.Duration) {
	if m != nil {
		m.pull.WithLabelValues(sizeBucket(bytes)).Observe(took.Seconds())
	}
}

// ImageEnsured records that a pod needed an image: whether it was present, and whether it had to be pulled, as true,
// false or unknown.
func (m *Metrics) ImageEnsured(policy v1.PullPolicy, present, pulled string) {
	if m != nil {
		m.ensured.WithLabelValues(strings.ToLower(string(policy)), present, pulled).Inc()
	}
}

// ImageVerified records the result of a check whether a pod may use a present image.
func (m *Metrics) ImageVerified(result string) {
	if m != nil {
		m.verified.WithLabelValues(result).Inc()
	}
}

// CredentialPluginRan records a run of a credential provider plugin.
func (m *Metrics) CredentialPluginRan(name string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.plugins.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.pluginErrors.WithLabelValues(name).Inc()
	}
}

// CredentialPluginsRead records the configuration of credential provider plugins that is in use, by its hash.
func (m *Metrics) CredentialPluginsRead(hash string) {
	if m != nil {
		m.pluginConfig.forget(func([]string) bool { return true })
		m.pluginConfig.WithLabelValues(hash).Set(1)
	}
}

// ConfigRead records whether the newest configuration on disk is valid.
func (m *Metrics) ConfigRead(valid bool) {
	switch {
	case m == nil:
	case valid:
		m.configError.Set(0)
	default:
		m.configError.Set(1)
	}
}

// ProbeBegan records how late a probe began; kind is Liveness, Readiness or Startup.
func (m *Metrics) ProbeBegan(kind string, late time.Duration) {
	if m != nil {
		m.probeLate.WithLabelValues(kind).Observe(late.Seconds())
	}
}

// Evicted records that a pod was evicted for a signal such as memory.available.
func (m *Metrics) Evicted(signal string) {
	if m != nil {
		m.evictions.WithLabelValues(signal).Inc()
	}
}

// EvictionMeasured records the age of the measurement because of which a pod is evicted.
func (m *Metrics) EvictionMeasured(signal string, age time.Duration) {
	if m != nil {
		m.evictionAge.WithLabelValues(signal).Observe(age.Seconds())
	}
}

// ImageCollected records that an unused image was removed: for its age, or for space.
func (m *Metrics) ImageCollected(reason string) {
	if m != nil {
		m.collected.WithLabelValues(reason).Inc()
	}
}

// Rejected records that a pod was not admitted, with the reason in its status. A reason that names a custom resource of
// the cluster counts as OutOfExtendedResources, so that there are never many series.
func (m *Metrics) Rejected(reason string) {
	if m == nil {
		return
	}
	if what, out := strings.CutPrefix(reason, "OutOf"); out {
		reason = "OutOf" + resourceLabel(what)
	}
	m.rejections.WithLabelValues(reason).Inc()
}

// Restarted records that a pod starts again with the UID of a pod that has just ended, because a source wants it again.
func (m *Metrics) Restarted(static bool) {
	if m != nil {
		label := ""
		if static {
			label = "true"
		}
		m.restarted.WithLabelValues(label).Inc()
	}
}

// Operation records a call to the runtime by its CRI name, for example RunPodSandbox.
func (m *Metrics) Operation(method string, took time.Duration, err error) {
	if m == nil {
		return
	}
	name := operationName(method)
	m.operations.WithLabelValues(name).Inc()
	m.operationTime.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.operationErrors.WithLabelValues(name).Inc()
	}
}
