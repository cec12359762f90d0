package stats

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unique"

	"github.com/prometheus/client_golang/prometheus"
)

// The types of this file hold the agent's own metrics. A process may have thousands of agents, each with all metrics, so a metric without
// values has little more than a reference to its description, which all agents share. Package prometheus makes the rest when the metrics are
// read.

// description is what never changes about a metric.
type description struct {
	name, help string
	labels     string // the names of the labels, separated by commas; "": the metric has no labels
	kind       prometheus.ValueType
}

// described is the reference of a metric to its description.
type described struct{ of unique.Handle[description] }

func describe(kind prometheus.ValueType, name, help string, labels ...string) described {
	return described{unique.Make(description{name, help, strings.Join(labels, ","), kind})}
}

// Describe sends the description of the metric.
func (d described) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc() }

func (d described) desc() *prometheus.Desc {
	of := d.of.Value()
	return prometheus.NewDesc(of.name, of.help, of.labelNames(), nil)
}

func (d described) kind() prometheus.ValueType { return d.of.Value().kind }

func (d description) labelNames() []string {
	if d.labels == "" {
		return nil
	}
	return strings.Split(d.labels, ",")
}

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
}

// Collect sends the value.
func (s *single) Collect(ch chan<- prometheus.Metric) {
	sendValue(ch, s.desc(), s.kind(), &s.amount, nil)
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
	read func() float64
}

// Collect sends the value.
func (r *measured) Collect(ch chan<- prometheus.Metric) {
	d := r.desc()
	m, err := prometheus.NewConstMetric(d, r.kind(), r.read())
	send(ch, d, m, err)
}

// amounts is a counter or a gauge with labels.
type amounts struct {
	described
	children[amount]
}

// WithLabelValues returns the series with these values of the labels.
func (v *amounts) WithLabelValues(labels ...string) *amount {
	return v.get(labels, func() *amount { return &amount{} })
}

// Collect sends all series.
func (v *amounts) Collect(ch chan<- prometheus.Metric) {
	d, kind := v.desc(), v.kind()
	v.each(func(labels []string, it *amount) { sendValue(ch, d, kind, it, labels) })
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
	d.each(func(labels []string, it *spread) { sendSpread(ch, desc, it, labels) })
}

// children are the series of a metric with labels. Methods may be called concurrently.
type children[T any] struct {
	mu     sync.Mutex
	sorted []child[T] // by key; a map of one or two series, as most metrics have, would take four times the memory
}

// child is one series.
type child[T any] struct {
	key string // the values of the labels, joined by separator
	it  *T
}

// separator separates the values of the labels in a key. This byte never occurs in UTF-8.
const separator = "\xff"

// get returns the series with these values of the labels. If there is none, it stores the result of make.
func (c *children[T]) get(labels []string, make func() *T) *T {
	key := keyOf(labels)
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := slices.BinarySearchFunc(c.sorted, key, func(have child[T], key string) int { return strings.Compare(have.key, key) })
	if !ok {
		c.sorted = slices.Insert(c.sorted, at, child[T]{key, make()})
	}
	return c.sorted[at].it
}

// keyOf returns the key of a series. It replaces what is not UTF-8 in a value.
func keyOf(labels []string) string {
	if slices.ContainsFunc(labels, func(l string) bool { return !utf8.ValidString(l) }) {
		labels = slices.Clone(labels)
		for i, l := range labels {
			labels[i] = strings.ToValidUTF8(l, "\uFFFD")
		}
	}
	return strings.Join(labels, separator)
}

// labelsOf returns the values of the labels of a key.
func labelsOf(key string) []string { return strings.Split(key, separator) }

// forget drops the series whose values of the labels match.
func (c *children[T]) forget(matches func(labels []string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sorted = slices.DeleteFunc(c.sorted, func(have child[T]) bool { return matches(labelsOf(have.key)) })
}

// each calls do for each series.
func (c *children[T]) each(do func(labels []string, it *T)) {
	c.mu.Lock()
	all := slices.Clone(c.sorted)
	c.mu.Unlock()
	for _, have := range all {
		do(labelsOf(have.key), have.it)
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
	return &single{described: describe(prometheus.CounterValue, name, help)}
}

func gauge(name, help string) *single {
	return &single{described: describe(prometheus.GaugeValue, name, help)}
}

func counters(name, help string, labels ...string) *amounts {
	return &amounts{described: describe(prometheus.CounterValue, name, help, labels...)}
}

func gauges(name, help string, labels ...string) *amounts {
	return &amounts{described: describe(prometheus.GaugeValue, name, help, labels...)}
}

func histogram(name, help string, bounds []float64) *distribution {
	return &distribution{described: describe(prometheus.UntypedValue, name, help), spread: spread{bounds: bounds}}
}

func histograms(name, help string, bounds []float64, labels ...string) *distributions {
	return &distributions{described: describe(prometheus.UntypedValue, name, help, labels...), bounds: bounds}
}

// ttl makes a gauge that shows the seconds until the time that the function ends returns, and +Inf if this function is nil or returns the
// zero time.
func ttl(name, help string, ends func() time.Time) *measured {
	return &measured{describe(prometheus.GaugeValue, name, help), func() float64 {
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
