package fleet

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// WriteMetrics writes the state of the fleet in the text format of Prometheus.
func (f *Fleet) WriteMetrics(w io.Writer) error {
	s := f.Status()
	var m metricsText
	m.head("wherry_fleet_nodes_wanted", "gauge", "Nodes that each group should have.")
	for i := range s.Groups {
		m.value("wherry_fleet_nodes_wanted", s.Groups[i].Want, "group", s.Groups[i].Name)
	}
	m.head("wherry_fleet_nodes", "gauge", "Nodes of each group by state.")
	for i := range s.Groups {
		n := &s.Groups[i].Nodes
		for _, state := range []struct {
			name  string
			count int
		}{
			{"ready", n.Ready}, {"joining", n.Joining}, {"leaving", n.Leaving}, {"crashed", n.Crashed}, {"partitioned", n.Partitioned}, {"failed", n.Failed},
		} {
			m.value("wherry_fleet_nodes", state.count, "group", s.Groups[i].Name, "state", state.name)
		}
	}
	m.one("wherry_fleet_join_window", "gauge", "How many nodes may join at the same time now.", s.JoinWindow)
	m.head("wherry_fleet_pods", "gauge", "Pods on nodes of the fleet by phase.")
	for _, p := range []struct {
		phase string
		count int
	}{{"Pending", s.Pods.Pending}, {"Running", s.Pods.Running}, {"Succeeded", s.Pods.Succeeded}, {"Failed", s.Pods.Failed}} {
		m.value("wherry_fleet_pods", p.count, "phase", p.phase)
	}
	m.one("wherry_fleet_pods_ready", "gauge", "Pods on nodes of the fleet that are Ready.", s.Pods.Ready)
	m.one("wherry_fleet_pod_starts_total", "counter", "Pods that were first seen Running.", s.Pods.Starts)
	m.head("wherry_fleet_lease_lateness_seconds", "gauge", "How late the newest renewals of leases were.")
	m.value("wherry_fleet_lease_lateness_seconds", s.Leases.P50.Seconds(), "quantile", "0.5")
	m.value("wherry_fleet_lease_lateness_seconds", s.Leases.P99.Seconds(), "quantile", "0.99")
	m.one("wherry_fleet_lease_overdue_seconds", "gauge", "How long the most overdue renewal of a lease waits now.", s.Leases.Overdue.Seconds())
	m.one("wherry_fleet_lease_failures_total", "counter", "Renewals of leases that have failed.", s.Leases.Failed)
	m.head("wherry_fleet_api_requests_total", "counter", "Requests of the nodes to the API server.")
	for _, verb := range slices.Sorted(maps.Keys(s.Requests.ByVerb)) {
		m.value("wherry_fleet_api_requests_total", s.Requests.ByVerb[verb], "verb", verb)
	}
	m.one("wherry_fleet_api_request_failures_total", "counter", "Requests of the nodes without an answer, or with the status 429 or 5xx.", s.Requests.Failed)
	m.one("wherry_fleet_api_request_seconds_total", "counter", "Time until the answers of the API server began, of all requests together.", s.Requests.Waited.Seconds())
	_, err := w.Write(m.Bytes())
	return err
}

// metricsText is a text in the format of Prometheus.
type metricsText struct{ bytes.Buffer }

func (m *metricsText) head(name, kind, help string) {
	fmt.Fprintf(m, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// one writes a metric without labels.
func (m *metricsText) one(name, kind, help string, v any) {
	m.head(name, kind, help)
	m.value(name, v)
}

// value writes one value. labels are names and values in turn; no value has a character that the format escapes, because they are names of groups,
// states and verbs.
func (m *metricsText) value(name string, v any, labels ...string) {
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, labels[i]+"="+strconv.Quote(labels[i+1]))
	}
	m.WriteString(name)
	if pairs != nil {
		m.WriteString("{" + strings.Join(pairs, ",") + "}")
	}
	fmt.Fprintf(m, " %v\n", v)
}
