package fleet

import (
	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Fleet)(nil)

// Describe sends the descriptions of the fleet's metrics.
func (f *Fleet) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(f, ch) }

// Collect sends the state of the fleet as metrics. It may be called concurrently.
func (f *Fleet) Collect(ch chan<- prometheus.Metric) {
	s := f.Status()
	gauge := func(name, help string, labels ...string) func(float64, ...string) {
		return sender(ch, prometheus.GaugeValue, name, help, labels)
	}
	counter := func(name, help string, labels ...string) func(float64, ...string) {
		return sender(ch, prometheus.CounterValue, name, help, labels)
	}
	wanted := gauge("wherry_fleet_nodes_wanted", "Nodes that each group should have.", "group")
	nodes := gauge("wherry_fleet_nodes", "Nodes of each group by state.", "group", "state")
	for i := range s.Groups {
		g := &s.Groups[i]
		wanted(float64(g.Want), g.Name)
		for state, count := range map[string]int{
			"ready": g.Nodes.Ready, "joining": g.Nodes.Joining, "leaving": g.Nodes.Leaving, "crashed": g.Nodes.Crashed,
			"partitioned": g.Nodes.Partitioned, "failed": g.Nodes.Failed,
		} {
			nodes(float64(count), g.Name, state)
		}
	}
	if s.Shard != nil {
		gauge("wherry_fleet_shard_slices", "Slices of the nodes that this process holds.")(float64(s.Shard.Slices))
		gauge("wherry_fleet_shards", "Processes that share the fleet, as far as this process knows.")(float64(len(s.Shard.Shards)))
	}
	gauge("wherry_fleet_join_window", "How many nodes may join at the same time now.")(float64(s.JoinWindow))
	pods := gauge("wherry_fleet_pods", "Pods on nodes of the fleet by phase.", "phase")
	for phase, count := range map[string]int{
		"Pending": s.Pods.Pending, "Running": s.Pods.Running, "Succeeded": s.Pods.Succeeded, "Failed": s.Pods.Failed,
	} {
		pods(float64(count), phase)
	}
	gauge("wherry_fleet_pods_ready", "Pods on nodes of the fleet that are Ready.")(float64(s.Pods.Ready))
	counter("wherry_fleet_pod_starts_total", "Pods that were first seen Running.")(float64(s.Pods.Starts))
	counter("wherry_fleet_pod_deletions_total", "Pods that have gone from the API.")(float64(s.Pods.Deletions))
	counter("wherry_fleet_joins_total", "Nodes that were Ready for the first time.")(float64(s.Joins.Ended))
	counter("wherry_fleet_join_seconds_total", "How long these joins took, of all nodes together.")(s.Joins.Took.Seconds())
	counter("wherry_fleet_join_api_seconds_total",
		"The part of this time in which the nodes waited for an answer of the API server.")(s.Joins.Waited.Seconds())
	late := gauge("wherry_fleet_lease_lateness_seconds", "How late the newest renewals of leases were.", "quantile")
	late(s.Leases.P50.Seconds(), "0.5")
	late(s.Leases.P99.Seconds(), "0.99")
	gauge("wherry_fleet_lease_overdue_seconds", "How long the most overdue renewal of a lease waits now.")(s.Leases.Overdue.Seconds())
	counter("wherry_fleet_lease_failures_total", "Renewals of leases that have failed.")(float64(s.Leases.Failed))
	gauge("wherry_fleet_events_waiting", "Events that wait now, because the API server is slow and other requests come first.")(float64(s.Requests.EventsWaiting))
	requests := counter("wherry_fleet_api_requests_total", "Requests of the nodes to the API server.", "verb")
	for verb, count := range s.Requests.ByVerb {
		requests(float64(count), verb)
	}
	counter("wherry_fleet_api_request_failures_total",
		"Requests of the nodes without an answer, or with the status 429 or 5xx.")(float64(s.Requests.Failed))
	counter("wherry_fleet_api_request_seconds_total",
		"Time until the answers of the API server began, of all requests together.")(s.Requests.Waited.Seconds())
}

// sender returns a function that sends one value of a metric to ch. The function gets the value and the values of the labels.
func sender(ch chan<- prometheus.Metric, kind prometheus.ValueType, name, help string, labels []string) func(float64, ...string) {
	d := prometheus.NewDesc(name, help, labels, nil)
	return func(v float64, values ...string) {
		m, err := prometheus.NewConstMetric(d, kind, v, values...)
		if err != nil {
			m = prometheus.NewInvalidMetric(d, err)
		}
		ch <- m
	}
}
