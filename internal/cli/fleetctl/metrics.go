package fleetctl

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/edge/server"
)

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
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(rw http.ResponseWriter, _ *http.Request) { w.writeMetrics(rw) })
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(ctx, l, mux, server.ServeOptions{Log: w.run.log(2)}) })
	w.said.line("metrics at http://%s/metrics", l.Addr())
	return func() {
		cancel()
		group.Wait()
	}, nil
}

// writeMetrics writes the metrics of the fleet and of the process.
func (w *watcher) writeMetrics(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if err := w.fleet.WriteMetrics(rw); err != nil {
		return // the client is gone
	}
	s := w.state()
	for _, m := range []struct {
		name, kind, help string
		value            any
	}{
		{"wherry_fleet_process_memory_bytes", "gauge", "Memory of objects and stacks of the process.", s.Memory},
		{"wherry_fleet_process_memory_per_node_bytes", "gauge", "Growth of that memory since the first node began, for each node.", s.MemoryPerNode},
		{"wherry_fleet_process_goroutines", "gauge", "Goroutines of the process.", s.Goroutines},
		{"wherry_fleet_process_cpu_seconds_total", "counter", "CPU time of the process.", s.CPUSeconds},
	} {
		fmt.Fprintf(rw, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
}

// mean returns how long a request waited for its answer on average.
func mean(r *fleet.Requests) time.Duration {
	if r.Total == 0 {
		return 0
	}
	return r.Waited / time.Duration(r.Total) //nolint:gosec // a count of requests fits
}
