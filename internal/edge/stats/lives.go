package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lives contains the metrics of the beginning, the start and the end of pods.
type lives struct {
	startSLI, startTotal                      *distribution
	firstNetwork                              *single
	containersPerPod                          *distribution
	orphans                                   *single
	orphanDirs, orphanDirsRemain              *single
	preemptions                               *amounts
	imageVolumes, imageVolumesOK, imageVolErr *single
	sleepsCut, hookFallbacks                  *single
	podRelist                                 *distribution
	eventsOK, eventsFailed                    *single
	eventLatency                              *distribution
	cgroups                                   *distributions
	podWatches                                *single
}

func newLives() lives {
	return lives{
		startSLI:         histogram("kubelet_pod_start_sli_duration_seconds", "Seconds from the creation of a pod without persistent volumes until all its containers ran, without the time of image pulls and init containers", podStartBuckets),
		startTotal:       histogram("kubelet_pod_start_total_duration_seconds", "Seconds from the creation of a pod until all its containers ran", podStartBuckets),
		firstNetwork:     gauge("kubelet_first_network_pod_start_sli_duration_seconds", "kubelet_pod_start_sli_duration_seconds of the first pod with a network of its own"),
		containersPerPod: histogram("kubelet_containers_per_pod_count", "Containers in the spec of a pod, without init containers, when the node first sees it", countBuckets),
		orphans:          counter("kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that no source has, such as after a forced deletion while no agent ran"),
		orphanDirs:       gauge("kubelet_orphan_pod_cleaned_volumes", "Pods that no source and no runtime has and that left something on the node, in the last search"),
		orphanDirsRemain: gauge("kubelet_orphan_pod_cleaned_volumes_errors", "Those of kubelet_orphan_pod_cleaned_volumes that were found at least a minute before, so that their removal fails or takes long"),
		preemptions:      counters("kubelet_preemptions", "Pods that the node ended to make room for a critical pod, by the resource that was short", "preemption_signal"),
		imageVolumes:     counter("kubelet_image_volume_requested_total", "Image volumes of the containers that the agent created or tried to create"),
		imageVolumesOK:   counter("kubelet_image_volume_mounted_succeed_total", "Mounts of image volumes in containers that were created"),
		imageVolErr:      counter("kubelet_image_volume_mounted_errors_total", "Mounts of image volumes that failed"),
		sleepsCut:        counter("kubelet_sleep_action_terminated_early_total", "Hooks with a sleep that ended before the sleep did"),
		hookFallbacks:    counter("kubelet_lifecycle_handler_http_fallbacks_total", "Hooks over HTTPS whose server speaks only HTTP, and that succeeded when they were repeated over HTTP"),
		podRelist:        histogram("kubelet_pleg_pod_relist_duration_seconds", "Seconds that the inspection of one pod took", prometheus.DefBuckets),
		eventsOK:         counter("kubelet_evented_pleg_connection_success_count", "Subscriptions to the events of the runtime that succeeded"),
		eventsFailed:     counter("kubelet_evented_pleg_connection_error_count", "Subscriptions to the events of the runtime that failed or ended"),
		eventLatency:     histogram("kubelet_evented_pleg_connection_latency_seconds", "Seconds from an event in the runtime until the agent received it", prometheus.DefBuckets),
		podWatches:       counter("kubelet_pod_watch_events_dropped_total", "Watches of the Pods API that the node ended because their client did not read for too long; a watch that goes on loses no event"),
		cgroups:          histograms("kubelet_cgroup_manager_duration_seconds", "Seconds that work on a pod's cgroup took, by what was done: create, update or destroy", prometheus.DefBuckets, "operation_type"),
	}
}

func (l *lives) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		l.startSLI, l.startTotal, l.firstNetwork, l.containersPerPod, l.orphans, l.orphanDirs, l.orphanDirsRemain, l.preemptions, l.imageVolumes, l.imageVolumesOK, l.imageVolErr,
		l.sleepsCut, l.hookFallbacks, l.podRelist, l.eventsOK, l.eventsFailed, l.eventLatency, l.cgroups, l.podWatches,
	}
}

// PodWatchEnded records that the node ended a watch of the Pods API because its client was too far behind.
func (m *Metrics) PodWatchEnded() {
	if m != nil {
		m.lives.podWatches.Inc()
	}
}

// RegisterShutdown registers the times of the machine's last shutdown that waited for pods. Times is called when the metrics are
// read; a zero time shows as 0.
func RegisterShutdown(reg prometheus.Registerer, times func() (began, finished time.Time)) error {
	show := func(name, help string, which func(began, finished time.Time) time.Time) prometheus.Collector {
		return &measured{describe(prometheus.GaugeValue, name, help), func() float64 {
			at := which(times())
			if at.IsZero() {
				return 0
			}
			return float64(at.UnixNano()) / second
		}}
	}
	return register(reg,
		show("kubelet_graceful_shutdown_start_time_seconds", "When the last shutdown of the machine that waited for pods began, in seconds since the epoch; 0: there was none",
			func(began, _ time.Time) time.Time { return began }),
		show("kubelet_graceful_shutdown_end_time_seconds", "When all pods had ended in the last shutdown of the machine, or their time was over, in seconds since the epoch; 0: not yet",
			func(_, finished time.Time) time.Time { return finished }))
}

// PodReady records how long it took from the creation of a pod until all its containers ran. waits is the part of total that image
// pulls and init containers took. stateful means that the pod has volumes that outlive it, so that the service level objective for the
// start of pods does not apply to it. network means that the pod has a network of its own and does not use the host's network.
func (m *Metrics) PodReady(total, waits time.Duration, stateful, network bool) {
	if m == nil {
		return
	}
	m.lives.startTotal.Observe(total.Seconds())
	if stateful {
		return
	}
	own := max(0, total-waits).Seconds()
	m.lives.startSLI.Observe(own)
	if network && !m.networkSeen.Swap(true) {
		m.lives.firstNetwork.Set(own)
	}
}

// PodSeen records a pod that the node sees for the first time, with the number of its containers; 0: only the runtime has the
// pod, no source has it.
func (m *Metrics) PodSeen(containers int) {
	switch {
	case m == nil:
	case containers == 0:
		m.lives.orphans.Inc()
	default:
		m.lives.containersPerPod.Observe(float64(containers))
	}
}

// Orphans records the result of a search for pods that no source and no runtime has and that left something on the node: how many
// there are, and how many of them were already found at least a minute before.
func (m *Metrics) Orphans(all, remain int) {
	if m != nil {
		m.lives.orphanDirs.Set(float64(all))
		m.lives.orphanDirsRemain.Set(float64(remain))
	}
}

// Preempted records that a pod was stopped to make room for a critical pod. signal names the resource that was short, as in the reason
// OutOfcpu.
func (m *Metrics) Preempted(signal string) {
	if m != nil {
		m.lives.preemptions.WithLabelValues(resourceLabel(signal)).Inc()
	}
}

// ImageVolumes records that a container with image volumes was created, or that mounting them failed.
func (m *Metrics) ImageVolumes(volumes int, failed bool) {
	if m == nil || volumes == 0 {
		return
	}
	m.lives.imageVolumes.Add(float64(volumes))
	if failed {
		m.lives.imageVolErr.Add(float64(volumes))
		return
	}
	m.lives.imageVolumesOK.Add(float64(volumes))
}

// SleepCut records that the sleep of a hook ended early.
func (m *Metrics) SleepCut() {
	if m != nil {
		m.lives.sleepsCut.Inc()
	}
}

// HookFellBack records that a hook's HTTPS request was repeated by HTTP.
func (m *Metrics) HookFellBack() {
	if m != nil {
		m.lives.hookFallbacks.Inc()
	}
}

// Inspected records the inspection of one pod.
func (m *Metrics) Inspected(took time.Duration) {
	if m != nil {
		m.lives.podRelist.Observe(took.Seconds())
	}
}

// Subscribed records a subscription to the events of the runtime: that it succeeded, or that it failed or ended.
func (m *Metrics) Subscribed(ok bool) {
	switch {
	case m == nil:
	case ok:
		m.lives.eventsOK.Inc()
	default:
		m.lives.eventsFailed.Inc()
	}
}

// EventArrived records how long an event of the runtime took to arrive.
func (m *Metrics) EventArrived(late time.Duration) {
	if m != nil {
		m.lives.eventLatency.Observe(max(0, late).Seconds())
	}
}

// CgroupDone records work on a pod's cgroup; operation is create, update or destroy.
func (m *Metrics) CgroupDone(operation string, took time.Duration) {
	if m != nil {
		m.lives.cgroups.WithLabelValues(operation).Observe(took.Seconds())
	}
}
