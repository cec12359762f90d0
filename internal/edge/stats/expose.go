package stats

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
)

// family is one metric: its kind, name, help text and labels.
type family struct {
	kind prometheus.ValueType
	desc *prometheus.Desc
}

func newFamily(kind prometheus.ValueType, name, help string, labels ...string) family {
	return family{kind: kind, desc: prometheus.NewDesc(name, help, labels, nil)}
}

// sink takes the metrics of one scrape.
type sink struct {
	to    chan<- prometheus.Metric
	clock nodeclock.Clock // shows the times in metrics
}

// put adds a value that was measured at the instant at. If at is zero, the value gets no time stamp.
func (out sink) put(f family, at time.Time, v float64, labels ...string) {
	m, err := prometheus.NewConstMetric(f.desc, f.kind, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	} else if !at.IsZero() {
		m = prometheus.NewMetricWithTimestamp(out.clock.Shows(at), m)
	}
	out.to <- m
}

// began adds the instant at which something began, in seconds since the epoch, unless it is not known.
func (out sink) began(f family, t time.Time, labels ...string) {
	if t.Unix() > 0 {
		out.put(f, time.Time{}, float64(out.clock.Shows(t).UnixNano())/second, labels...)
	}
}

// opt adds the value *v, divided by unit, if it was measured (v is not nil).
func (out sink) opt(f family, at time.Time, v *uint64, unit float64, labels ...string) {
	if v != nil {
		out.put(f, at, float64(*v)/unit, labels...)
	}
}

// collector runs one scrape. Its Describe sends no descriptions, because the metrics depend on the pods and containers that run.
type collector struct {
	collect func(sink)
	clock   nodeclock.Clock // only metrics with times need it
}

func (collector) Describe(chan<- *prometheus.Desc)      {}
func (c collector) Collect(ch chan<- prometheus.Metric) { c.collect(sink{ch, c.clock}) }

// scrape returns a handler that measures once per request.
func (s *Stats) scrape(collect func(context.Context, sink)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}, collector{func(out sink) { collect(r.Context(), out) }, s.cfg.Clock}).ServeHTTP(w, r)
	})
}

// serve returns a handler that serves the metrics of a collector. It has a registry only during a request.
func serve(opts promhttp.HandlerOpts, c prometheus.Collector) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reg := prometheus.NewRegistry()
		if err := reg.Register(c); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		promhttp.HandlerFor(reg, opts).ServeHTTP(w, r)
	})
}

// register registers collectors, or returns an error. Only the first is a collector of its own, because a registry needs memory for each
// collector and for each description. The first is enough to refuse the same metrics a second time.
func register(reg prometheus.Registerer, first prometheus.Collector, others ...prometheus.Collector) error {
	for _, c := range []prometheus.Collector{first, Bundle(slices.Clone(others))} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("register the agent's metrics: %w", err)
		}
	}
	return nil
}

// Bundle collects several metrics as one collector.
type Bundle []prometheus.Collector

// Describe sends no descriptions.
func (Bundle) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics.
func (b Bundle) Collect(ch chan<- prometheus.Metric) {
	for _, c := range b {
		c.Collect(ch)
	}
}
