package stats

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The types of this file hold the agent's own metrics. A process may have thousands of agents, each with all metrics, so a metric without
// values has only its name and help text, which are constants of the program. Package prometheus makes the rest when the metrics are read.

// described holds the name, the help text and the label names of a metric.
type described struct {
	name, help string
	labels     []string // nil: the metric has no labels
}

// Describe sends the description of the metric.
func (d *described) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc() }

func (d *described) desc() *prometheus.Desc { return prometheus.NewDesc(d.name, d.help, d.labels, nil) }

// amount is the value of one series of a counter or a gauge. Its methods may be called concurrently.
type amount struct{ bits atomic.Uint64 }

// Add adds d.
func (v *amount) Add(d float64) {
	for {
		old := v.bits.Load()
		if v.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+d)) {
			return
		}
	}
}

// Inc adds 1.
func (v *amount) Inc() { v.Add(1) }

// Set sets the value.
func (v *amount) Set(to float64) { v.bits.Store(math.Float64bits(to)) }

func (v *amount) get() float64 { return math.Float64frombits(v.bits.Load()) }

// spread is one series of a histogram. Its methods may be called concurrently.
type spread struct {
	mu     sync.Mutex
	bounds []float64 // the upper bounds of the buckets, in order
	counts []uint64  // the observations in each bucket, without those of smaller buckets; nil: there was no observation
	total  uint64
	sum    float64
}

// Observe adds an observation.
func (s *spread) Observe(v float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make([]uint64, len(s.bounds))
	}
	if i, _ := slices.BinarySearch(s.bounds, v); i < len(s.counts) {
		s.counts[i]++
	}
	s.total++
	s.sum += v
}

// read returns the number of observations, their sum, and for each bucket's upper bound the number of observations up to this bound.
func (s *spread) read() (total uint64, sum float64, below map[float64]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	below = make(map[float64]uint64, len(s.bounds))
	var n uint64
	for i, b := range s.bounds {
		if s.counts != nil {
			n += s.counts[i]
		}
		below[b] = n
	}
	return s.total, s.sum, below
}

// send sends a metric, or the reason why it cannot be shown.
func send(ch chan<- prometheus.Metric, d *prometheus.Desc, m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	ch <- m
}

func sendValue(ch chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, v *amount, labels []string) {
	m, err := prometheus.NewConstMetric(d, kind, v.get(), labels...)
	send(ch, d, m, err)
}

func sendSpread(ch chan<- prometheus.Metric, d *prometheus.Desc, s *spread, labels []string) {
	total, sum, below := s.read()
	m, err := prometheus.NewConstHistogram(d, total, sum, below, labels...)
	send(ch, d, m, err)
}

// single is a counter or a gauge without labels.
type single struct {
	described
	amount
	kind prometheus.ValueType
}

// Collect sends the value.
func (s *single) Collect(ch chan<- prometheus.Metric) {
	sendValue(ch, s.desc(), s.kind, &s.amount, nil)
}

// distribution is a histogram without labels.
type distribution struct {
	described
	spread
}

// Collect sends the histogram.
func (d *distribution) Collect(ch chan<- prometheus.Metric) { sendSpread(ch, d.desc(), &d.spread, nil) }

// measured is a counter or a gauge whose value is read when the metrics are read.
type measured struct {
	described
	kind prometheus.ValueType
	read func() float64
}

// Collect sends the value.
func (r *measured) Collect(ch chan<- prometheus.Metric) {
	d := r.desc()
	m, err := prometheus.NewConstMetric(d, r.kind, r.read())
	send(ch, d, m, err)
}

// amounts is a counter or a gauge with labels.
type amounts struct {
	described
	children[amount]
	kind prometheus.ValueType
}

// WithLabelValues returns the series with these values of the labels.
func (v *amounts) WithLabelValues(labels ...string) *amount {
	return v.get(labels, func() *amount { return &amount{} })
}

// Collect sends all series.
func (v *amounts) Collect(ch chan<- prometheus.Metric) {
	d := v.desc()
	v.each(func(c *child[amount]) { sendValue(ch, d, v.kind, c.it, c.labels) })
}

// distributions is a histogram with labels.
type distributions struct {
	described
	children[spread]
	bounds []float64
}

// WithLabelValues returns the series with these values of the labels.
func (d *distributions) WithLabelValues(labels ...string) *spread {
	return d.get(labels, func() *spread { return &spread{bounds: d.bounds} })
}

// Collect sends all series.
func (d *distributions) Collect(ch chan<- prometheus.Metric) {
	desc := d.desc()
	d.each(func(c *child[spread]) { sendSpread(ch, desc, c.it, c.labels) })
}

// children are the series of a metric with labels. Methods may be called concurrently.
type children[T any] struct {
	mu    sync.Mutex
	byKey map[string]*child[T]
}

type child[T any] struct {
	labels []string
	it     *T
}

// get returns the series with these values of the labels. If there is none, it stores the result of make.
func (c *children[T]) get(labels []string, make func() *T) *T {
	key := strings.Join(labels, "\xff") // the byte 0xff never occurs in UTF-8
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.byKey[key]; have != nil {
		return have.it
	}
	if c.byKey == nil {
		c.byKey = map[string]*child[T]{}
	}
	added := &child[T]{labels: slices.Clone(labels), it: make()}
	for i, l := range added.labels {
		added.labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	c.byKey[key] = added
	return added.it
}

// forget drops the series whose values of the labels match.
func (c *children[T]) forget(matches func(labels []string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, have := range c.byKey {
		if matches(have.labels) {
			delete(c.byKey, key)
		}
	}
}

func (c *children[T]) each(do func(*child[T])) {
	c.mu.Lock()
	all := make([]*child[T], 0, len(c.byKey))
	for _, have := range c.byKey {
		all = append(all, have)
	}
	c.mu.Unlock()
	for _, have := range all {
		do(have)
	}
}

// constants are a gauge with labels whose values never change. list is called when the metrics are read.
type constants struct {
	described
	list func(put func(v float64, labels ...string))
}

// Collect sends all series.
func (c *constants) Collect(ch chan<- prometheus.Metric) {
	d := c.desc()
	c.list(func(v float64, labels ...string) {
		m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...)
		send(ch, d, m, err)
	})
}

func counter(name, help string) *single {
	return &single{described: described{name: name, help: help}, kind: prometheus.CounterValue}
}

func gauge(name, help string) *single {
	return &single{described: described{name: name, help: help}, kind: prometheus.GaugeValue}
}

func counters(name, help string, labels ...string) *amounts {
	return &amounts{described: described{name, help, labels}, kind: prometheus.CounterValue}
}

func gauges(name, help string, labels ...string) *amounts {
	return &amounts{described: described{name, help, labels}, kind: prometheus.GaugeValue}
}

func histogram(name, help string, bounds []float64) *distribution {
	return &distribution{described: described{name: name, help: help}, spread: spread{bounds: bounds}}
}

func histograms(name, help string, bounds []float64, labels ...string) *distributions {
	return &distributions{described: described{name, help, labels}, bounds: bounds}
}

// ttl makes a gauge that shows the seconds until the time that the function ends returns, and +Inf if this function is nil or returns the
// zero time.
func ttl(name, help string, ends func() time.Time) *measured {
	return &measured{described{name: name, help: help}, prometheus.GaugeValue, func() float64 {
		if ends == nil {
			return math.Inf(1)
		}
		at := ends()
		if at.IsZero() {
			return math.Inf(1)
		}
		return time.Until(at).Seconds()
	}}
}
