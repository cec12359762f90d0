package stats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/wherry-node/wherry/internal/edge/stats"
)

// upstreamMetric is a line of testdata/upstream.txt.
type upstreamMetric struct{ path, name, kind, stability, labels, buckets, verdict string }

func upstreamMetrics(t *testing.T) (out []upstreamMetric) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "upstream.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != 7 {
			t.Fatalf("%q has %d columns", line, len(f))
		}
		out = append(out, upstreamMetric{f[0], f[1], f[2], f[3], f[4], f[5], f[6]})
	}
	return out
}

// Every metric of upstream's kubelet is served under its name, with its type, labels and buckets, or testdata/upstream.txt says when
// it will be served, or why it has no meaning here. Stable metrics are all served.
func TestUpstreamsMetrics(t *testing.T) {
	t.Parallel()
	served := servedMetrics(t)
	have := 0
	for _, u := range upstreamMetrics(t) {
		got, serves := served[u.path+" "+u.name]
		verdict, why, _ := strings.Cut(u.verdict, ": ")
		switch {
		case verdict == "have" && serves:
			have++
			if want := u.want(); got != want {
				t.Errorf("%s on %s\nis   %s\nwant %s", u.name, u.path, got, want)
			}
		case verdict == "have":
			t.Errorf("%s is not served on %s", u.name, u.path)
		case serves:
			t.Errorf("%s is served on %s, and the table says %q", u.name, u.path, u.verdict)
		case verdict != "later" && verdict != "none" || why == "":
			t.Errorf("%s: the table says %q", u.name, u.verdict)
		case u.stability == "stable":
			t.Errorf("%s is stable upstream and not served", u.name)
		}
	}
	if have < 90 {
		t.Errorf("only %d metrics of upstream are served", have)
	}
}

// want returns the type, labels and buckets that the metric must have, as one text.
func (u *upstreamMetric) want() string {
	kind := u.kind
	if kind == "custom" { // the table does not say whether a custom metric is a gauge or a counter
		kind = "*"
	}
	labels := strings.Split(strings.Trim(u.labels, "-"), ",")
	slices.Sort(labels)
	return fmt.Sprintf("%s (%s) %s", kind, strings.Join(labels, ", "), u.buckets)
}

// servedMetrics returns the type, labels and buckets of every metric that a node serves, as one text each, by path and name.
func servedMetrics(t *testing.T) map[string]string {
	t.Helper()
	custom := map[string]bool{}
	for _, u := range upstreamMetrics(t) {
		if u.kind == "custom" {
			custom[u.name] = true
		}
	}
	out := map[string]string{}
	put := func(path string, list []metric, buckets map[string]string) {
		for _, m := range list {
			labels := strings.Split(m.labels, ", ")
			slices.Sort(labels)
			b := buckets[m.name]
			if b == "" {
				b = "-"
			}
			if custom[m.name] {
				m.kind = "*"
			}
			out[path+" "+m.name] = fmt.Sprintf("%s (%s) %s", m.kind, strings.Join(labels, ", "), b)
		}
	}
	probed := stats.NewProbed()
	collectors := ownCollectors(t)
	put("/metrics", ownMetrics(t), bucketsOf(t, collectors))
	put("/metrics/resource", familyMetrics(stats.ResourceFamilies()), nil)
	put("/metrics/probes", metricsOf(t, probed.Collectors()), bucketsOf(t, probed.Collectors()))
	put("/metrics/slis", healthMetrics(t), nil)
	return out
}

// bucketsOf returns the bounds of the buckets of each histogram. If a histogram has no series, bucketsOf creates one.
func bucketsOf(t *testing.T, collectors []prometheus.Collector) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, c := range collectors {
		stats.AddSeries(c)
		if vec, ok := c.(*prometheus.HistogramVec); ok { // package server registers a vector of package prometheus
			descs := make(chan *prometheus.Desc, 1)
			vec.Describe(descs)
			vec.WithLabelValues(make([]string, len(strings.Split(described(<-descs, "").labels, ", ")))...)
		}
		series := make(chan prometheus.Metric)
		go func() { c.Collect(series); close(series) }()
		for s := range series {
			var value dto.Metric
			if err := s.Write(&value); err != nil {
				t.Fatal(err)
			}
			if value.Histogram == nil {
				continue
			}
			var bounds []string
			for _, b := range value.Histogram.Bucket {
				bounds = append(bounds, strconv.FormatFloat(b.GetUpperBound(), 'g', 6, 64))
			}
			out[described(s.Desc(), "").name] = strings.Join(bounds, ",")
		}
	}
	return out
}
