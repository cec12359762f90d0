package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// resizes contains the metrics of resizes in place. The number of waiting resizes is counted when the metrics are read (Tally).
type resizes struct {
	requested, infeasible, accepted *amounts
	took                            *distributions
}

func newResizes() resizes {
	return resizes{
		requested: counters("kubelet_container_requested_resizes_total", "Requested changes of the resources of running containers, by resource, by requests or limits, and by kind of change: add, remove, increase or decrease",
			"resource", "requirement", "operation"),
		infeasible: counters("kubelet_pod_infeasible_resizes_total", "Resizes that this node can never accept, by the reason", "reason_detail"),
		accepted:   counters("kubelet_pod_deferred_accepted_resizes_total", "Resizes that were accepted after they had been deferred, by what made the node decide about them again", "retry_trigger"),
		took: histograms("kubelet_pod_resize_duration_milliseconds", "Milliseconds from when the node accepted a resize until all containers had it",
			resizeBuckets, "success"),
	}
}

func (r *resizes) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.requested, r.infeasible, r.accepted, r.took}
}

// ResizeAsked records the changes of container resources between two specs of one pod.
func (m *Metrics) ResizeAsked(before, after *v1.Pod) {
	if m == nil {
		return
	}
	m.resizes.asked(before.Spec.Containers, after.Spec.Containers, true)
	m.resizes.asked(before.Spec.InitContainers, after.Spec.InitContainers, false)
}

func (r *resizes) asked(before, after []v1.Container, all bool) {
	for i := range before {
		was := &before[i]
		if !all && !pod.IsSidecar(was) {
			continue
		}
		for j := range after {
			if is := &after[j]; is.Name == was.Name {
				r.change("requests", was.Resources.Requests, is.Resources.Requests)
				r.change("limits", was.Resources.Limits, is.Resources.Limits)
			}
		}
	}
}

func (r *resizes) change(requirement string, was, is v1.ResourceList) {
	for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if op := changed(was[name], is[name]); op != "" {
			r.requested.WithLabelValues(string(name), requirement, op).Inc()
		}
	}
}

// changed returns the direction of a change of an amount; "": no change.
func changed(was, is resource.Quantity) string {
	switch {
	case was.Cmp(is) == 0:
		return ""
	case was.IsZero():
		return "add"
	case is.IsZero():
		return "remove"
	case was.Cmp(is) < 0:
		return "increase"
	}
	return "decrease"
}

// ResizeInfeasible records a resize that this node can never accept, with a label for the reason.
func (m *Metrics) ResizeInfeasible(detail string) {
	if m != nil {
		m.resizes.infeasible.WithLabelValues(detail).Inc()
	}
}

// ResizeAccepted records that a deferred resize was accepted; trigger says why the node decided about it again.
func (m *Metrics) ResizeAccepted(trigger string) {
	if m != nil {
		m.resizes.accepted.WithLabelValues(trigger).Inc()
	}
}

// Resized records that the runtime has made an accepted resize, or that a try failed.
func (m *Metrics) Resized(took time.Duration, ok bool) {
	if m == nil {
		return
	}
	label := "false"
	if ok {
		label = "true"
	}
	m.resizes.took.WithLabelValues(label).Observe(float64(took.Milliseconds()))
}
