package stats

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Tally contains the numbers of pods, mirrors and resizes of the node at one moment. They are counted when the metrics are read, so
// that no counter has to follow every change.
type Tally struct {
	// Desired counts the pods that the sources want on this node. Active counts the desired pods that have not ended. The key true
	// stands for static pods, false for all others.
	Desired, Active map[bool]int
	Mirrors         int             // mirror pods in the API
	Ephemeral       int             // ephemeral containers in the specs of pods
	Working         map[Working]int // pods with a worker
	Pending         map[string]int  // resizes that wait, by reason: deferred or infeasible
	InProgress      int             // resizes that are being made
}

// Working is a state of a pod that has a worker.
type Working struct {
	Lifecycle string // sync, terminating or terminated
	Config    string // desired, orphan (no source has it any more) or runtime_only (no source ever had it)
	Static    string // "true", "" or unknown
}

// workings returns every state that kubelet_working_pods shows.
func workings() []Working {
	var out []Working
	for _, w := range [...]Working{{"", "desired", "true"}, {"", "desired", ""}, {"", "orphan", "true"}, {"", "orphan", ""}, {"", "runtime_only", "unknown"}} {
		for _, w.Lifecycle = range [...]string{"sync", "terminating", "terminated"} {
			out = append(out, w)
		}
	}
	return out
}

// countTally writes the numbers of a Tally as metrics.
func countTally(count func() Tally, out sink) {
	g := func(name, help string, labels ...string) family {
		return newFamily(prometheus.GaugeValue, name, help, labels...)
	}
	t, now := count(), time.Time{}
	desired := g("kubelet_desired_pods", "Pods that the sources want on this node, also those that have ended; by whether they are static", "static")
	active := g("kubelet_active_pods", "Pods that the sources want on this node and that have not ended, by whether they are static", "static")
	working := g("kubelet_working_pods", "Pods that the node works on, by the stage of their life, by whether a source has them, and by whether they are static", "lifecycle", "config", "static")
	for _, static := range [...]bool{false, true} {
		label := ""
		if static {
			label = strconv.FormatBool(static)
		}
		out.put(desired, now, float64(t.Desired[static]), label)
		out.put(active, now, float64(t.Active[static]), label)
	}
	out.put(g("kubelet_mirror_pods", "Pods in the API that show static pods of this node"), now, float64(t.Mirrors))
	out.put(g("kubelet_managed_ephemeral_containers", "Ephemeral containers in the specs of this node's pods"), now, float64(t.Ephemeral))
	for _, w := range workings() {
		out.put(working, now, float64(t.Working[w]), w.Lifecycle, w.Config, w.Static)
	}
	pending := g("kubelet_pod_pending_resizes", "Resizes that wait, by reason: deferred or infeasible", "reason")
	for _, reason := range slices.Sorted(maps.Keys(t.Pending)) {
		out.put(pending, now, float64(t.Pending[reason]), reason)
	}
	out.put(g("kubelet_pod_in_progress_resizes", "Resizes that the node has accepted and is carrying out"), now, float64(t.InProgress))
}

// Startup contains the times of the node's start. A zero time is not known.
type Startup struct {
	Boot       time.Time // the machine started
	Began      time.Time // the agent started
	Attempt    time.Time // the agent first tried to register the Node
	Registered time.Time // the agent created the Node
	Ready      time.Time // the Node was first ready
}

// countStartup writes how long the parts of the node's start took. It writes nothing for a node that existed before or that is
// standalone.
func countStartup(read func() Startup, out sink) {
	s := read()
	put := func(name, help string, from, to time.Time) {
		if !s.Registered.IsZero() && !from.IsZero() && !to.IsZero() {
			out.put(newFamily(prometheus.GaugeValue, name, help), time.Time{}, to.Sub(from).Seconds())
		}
	}
	put("kubelet_node_startup_pre_kubelet_duration_seconds", "Seconds from the start of the machine to that of the agent", s.Boot, s.Began)
	put("kubelet_node_startup_pre_registration_duration_seconds", "Seconds from the start of the agent until it first tried to register the Node", s.Began, s.Attempt)
	put("kubelet_node_startup_registration_duration_seconds", "Seconds that the registration of a new Node took", s.Attempt, s.Registered)
	put("kubelet_node_startup_post_registration_duration_seconds", "Seconds from the registration of a new Node until it was ready", s.Registered, s.Ready)
	put("kubelet_node_startup_duration_seconds", "Seconds from the start of the machine until its new Node was ready", s.Boot, s.Ready)
}

// countPersistentVolumes writes how full the persistent volumes are. A number that could not be measured is 0, as with upstream's
// kubelet.
func countPersistentVolumes(volumes []Volume, out sink) {
	put := func(name, help string, value func(*Volume) uint64) {
		f := newFamily(prometheus.GaugeValue, "kubelet_volume_stats_"+name, help, "namespace", "persistentvolumeclaim")
		for i := range volumes {
			out.put(f, time.Time{}, float64(value(&volumes[i])), volumes[i].PVCNamespace, volumes[i].PVCName)
		}
	}
	put("capacity_bytes", "Capacity of the volume in bytes", func(v *Volume) uint64 { return v.CapacityBytes })
	put("available_bytes", "Number of available bytes in the volume", func(v *Volume) uint64 { return v.AvailableBytes })
	put("used_bytes", "Number of used bytes in the volume", func(v *Volume) uint64 { return v.UsedBytes })
	put("inodes", "Maximum number of inodes in the volume", func(v *Volume) uint64 { return v.Inodes })
	put("inodes_free", "Number of free inodes in the volume", func(v *Volume) uint64 { return v.InodesFree })
	put("inodes_used", "Number of used inodes in the volume", func(v *Volume) uint64 { return v.InodesUsed })
	health := newFamily(prometheus.GaugeValue, "kubelet_volume_stats_health_status_abnormal", "1 if the CSI driver reports an abnormal condition of the volume, 0 otherwise",
		"namespace", "persistentvolumeclaim")
	for i := range volumes {
		switch v := &volumes[i]; {
		case v.Abnormal == nil:
		case *v.Abnormal:
			out.put(health, time.Time{}, 1, v.PVCNamespace, v.PVCName)
		default:
			out.put(health, time.Time{}, 0, v.PVCNamespace, v.PVCName)
		}
	}
}
