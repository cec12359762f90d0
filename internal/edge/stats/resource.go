package stats

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const second = float64(time.Second)

// resourceFamilies are the metrics of /metrics/resource, with the names that metrics-server reads.
type resourceFamilies struct {
	nodeCPU, nodeMemory, nodeSwap             family
	start, cpu, memory, swap, swapLimit       family
	podCPU, podMemory, podSwap, resourceError family
}

func newResourceFamilies() resourceFamilies {
	container, podLabels := []string{"container", "pod", "namespace"}, []string{"pod", "namespace"}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	return resourceFamilies{
		nodeCPU:       newFamily(counter, "node_cpu_usage_seconds_total", "CPU time that the node used, in core-seconds"),
		nodeMemory:    newFamily(gauge, "node_memory_working_set_bytes", "Working set of the node in bytes"),
		nodeSwap:      newFamily(gauge, "node_swap_usage_bytes", "Swap that the node uses, in bytes"),
		start:         newFamily(gauge, "container_start_time_seconds", "When the container started, in seconds since the epoch", container...),
		cpu:           newFamily(counter, "container_cpu_usage_seconds_total", "CPU time that the container used, in core-seconds", container...),
		memory:        newFamily(gauge, "container_memory_working_set_bytes", "Working set of the container in bytes", container...),
		swap:          newFamily(gauge, "container_swap_usage_bytes", "Swap that the container uses, in bytes", container...),
		swapLimit:     newFamily(gauge, "container_swap_limit_bytes", "Swap that the container may use, in bytes", container...),
		podCPU:        newFamily(counter, "pod_cpu_usage_seconds_total", "CPU time that the pod used, in core-seconds", podLabels...),
		podMemory:     newFamily(gauge, "pod_memory_working_set_bytes", "Working set of the pod in bytes", podLabels...),
		podSwap:       newFamily(gauge, "pod_swap_usage_bytes", "Swap that the pod uses, in bytes", podLabels...),
		resourceError: newFamily(gauge, "resource_scrape_error", "1 if something could not be measured, else 0"),
	}
}

func (s *Stats) resourceMetrics(ctx context.Context, out sink) {
	f := newResourceFamilies()
	r, err := s.collect(ctx, usageOnly)
	failed := 0.0
	if err != nil {
		failed = 1
		s.cfg.Log.Warn("metrics are incomplete", "err", err)
	}
	out.put(f.resourceError, time.Time{}, failed)
	out.resource(&r.node, f.nodeCPU, f.nodeMemory, f.nodeSwap)
	for i := range r.pods {
		p := &r.pods[i]
		for j := range p.containers {
			c := &p.containers[j]
			labels := []string{c.name, p.ref.Name, p.ref.Namespace}
			out.began(f.start, c.started, labels...)
			out.resource(&c.usage, f.cpu, f.memory, f.swap, labels...)
			if sw := c.usage.swap; sw != nil && sw.available != nil {
				out.opt(f.swapLimit, sw.at, sum(sw.available, sw.usage), 1, labels...)
			}
		}
		out.resource(&p.usage, f.podCPU, f.podMemory, f.podSwap, p.ref.Name, p.ref.Namespace)
	}
}

func (out sink) resource(u *usage, cpu, memory, swap family, labels ...string) {
	if u.cpu != nil {
		out.put(cpu, u.cpu.at, float64(u.cpu.nanos)/second, labels...)
	}
	if u.memory != nil {
		out.opt(memory, u.memory.at, u.memory.workingSet, 1, labels...)
	}
	if u.swap != nil {
		out.opt(swap, u.swap.at, u.swap.usage, 1, labels...)
	}
}
