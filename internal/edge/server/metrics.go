package server

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's own metrics, with the names and labels that dashboards know.
type metrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	inflight  *prometheus.GaugeVec
	webSocket *prometheus.CounterVec
	// checks are made by the first request that needs them, so that a server without requests does not hold them.
	checks func() *checkMetrics
}

// checkMetrics are the results of the health checks. They have a registry of their own, which /metrics/slis serves.
type checkMetrics struct {
	registry *prometheus.Registry
	healthy  *prometheus.GaugeVec
	results  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "HTTP requests received since the server started."}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Seconds that HTTP requests took."}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "HTTP requests being served."}, labels),
		webSocket: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total",
			Help: "WebSocket requests (exec, attach, portforward) that the node translated."}, []string{"subresource"}),
		checks: sync.OnceValue(newCheckMetrics),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.inflight, m.webSocket} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register server metrics: %w", err)
		}
	}
	return m, nil
}

func newCheckMetrics() *checkMetrics {
	m := &checkMetrics{
		registry: prometheus.NewRegistry(),
		healthy: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "1 if the last run of a health check succeeded, 0 if it failed."},
			[]string{"name", "type"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Health checks by their results."}, []string{"name", "type", "status"}),
	}
	m.registry.MustRegister(m.healthy, m.results)
	return m
}

// checked records the result of a health check in the metrics; a nil err means that the check succeeded.
func (m *metrics) checked(name string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	c := m.checks()
	c.healthy.WithLabelValues(name, "healthz").Set(value)
	c.results.WithLabelValues(name, "healthz", status).Inc()
}

// count wraps the handler of a port and counts its requests.
func (s *Server) count(serverType string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := pathLabel(r.URL.Path)
		labels := []string{methodLabel(r.Method), path, serverType, strconv.FormatBool(longRunning(path))}
		began := time.Now()
		s.metrics.requests.WithLabelValues(labels...).Inc()
		s.metrics.inflight.WithLabelValues(labels...).Inc()
		defer func() {
			s.metrics.inflight.WithLabelValues(labels...).Dec()
			s.metrics.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// pathLabel returns the value of the label path. Every path that is not an endpoint becomes "other", so that clients cannot create any
// number of metric series.
func pathLabel(path string) string {
	switch r := root(path); r {
	case "healthz", "pods", "stats", "metrics", "metrics/slis", "metrics/cadvisor", "metrics/probes", "metrics/resource", "run", "exec",
		"attach", "portForward", "containerLogs", "checkpoint", "configz", "runningpods", "flagz", "statusz", "logs", "debug", "console":
		return r
	}
	return "other"
}

func methodLabel(method string) string {
	switch method {
	case http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete,
		http.MethodTrace, http.MethodConnect:
		return method
	}
	return "other"
}

func longRunning(path string) bool {
	return path == "exec" || path == "attach" || path == "portForward" || path == "debug" || path == "console"
}

// serveSLIs answers /metrics/slis.
func (s *Server) serveSLIs(w http.ResponseWriter, r *http.Request) {
	serveMetrics(s.metrics.checks().registry).ServeHTTP(w, r)
}

// serveMetrics serves the metrics of a registry. A collector that fails does not hide the others.
func serveMetrics(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}
