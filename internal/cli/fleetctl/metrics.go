package fleetctl

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// checkMetrics says early, before anything is started, that the address of Metrics cannot be used.
func (r *Run) checkMetrics() error {
	if r.Metrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", r.Metrics)
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	return l.Close()
}

// serveMetrics serves the metrics of the fleet at the address of the run, if it has one. end ends that. The metrics tell nothing that is secret, so that
// everybody who reaches the address may read them.
func (w *watcher) serveMetrics() (end func(), err error) {
	if w.run.Metrics == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", w.run.Metrics)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(w.fleet, process{w})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(ctx, l, mux, server.ServeOptions{Log: w.run.log(2)}) })
	w.said.line("metrics at http://%s/metrics", l.Addr())
	return func() {
		cancel()
		group.Wait()
	}, nil
}

// process collects the metrics of the process that runs the fleet.
type process struct{ w *watcher }

var _ prometheus.Collector = process{}

// Describe sends the descriptions of the metrics of the process.
func (p process) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect sends the metrics of the process.
func (p process) Collect(ch chan<- prometheus.Metric) {
	s := p.w.state()
	for _, m := range []struct {
		name, help string
		kind       prometheus.ValueType
		value      float64
	}{
		{"wherry_fleet_process_memory_bytes", "Memory of objects and stacks of the process.", prometheus.GaugeValue, float64(s.Memory)},
		{"wherry_fleet_process_memory_per_node_bytes", "Growth of that memory since the first node began, for each node.", prometheus.GaugeValue, float64(s.MemoryPerNode)},
		{"wherry_fleet_process_goroutines", "Goroutines of the process.", prometheus.GaugeValue, float64(s.Goroutines)},
		{"wherry_fleet_process_cpu_seconds_total", "CPU time of the process.", prometheus.CounterValue, s.CPUSeconds},
	} {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.name, m.help, nil, nil), m.kind, m.value)
	}
}

// waitingEvents returns a text with the number of events that wait, or "" if none waits.
func waitingEvents(r *fleet.Requests) string {
	if r.EventsWaiting == 0 {
		return ""
	}
	return fmt.Sprintf("; %d events wait", r.EventsWaiting)
}

// mean returns how long a request waited for its answer on average.
func mean(r *fleet.Requests) time.Duration {
	if r.Total == 0 {
		return 0
	}
	return r.Waited / time.Duration(r.Total) //nolint:gosec // a count of requests fits
}
