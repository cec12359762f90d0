package stats_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/edge/stats"
)

// docs/metrics.md must be equal to the page that metricsPage generates from the metrics that the agent can serve. With the flag
// update, the test writes the file.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "..", "docs", "metrics.md")
	want := metricsPage(t)
	if *stats.Update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/metrics.md is not what the agent serves: run make golden (-is +want):\n%s", diff)
	}
}

// Every metric that the agent registers or has a value of is listed on the page.
func TestEveryRegisteredMetricHasItsRow(t *testing.T) {
	t.Parallel()
	rows := map[string]bool{}
	for _, m := range ownMetrics(t) {
		rows[m.name] = true
	}
	reg, found := registered(t)
	names := map[string]bool{}
	for _, m := range found {
		names[m.name] = true
	}
	descs := make(chan *prometheus.Desc)
	go func() { reg.Describe(descs); close(descs) }()
	for d := range descs {
		names[described(d, "").name] = true
	}
	for name := range names {
		if !rows[name] {
			t.Errorf("%s is registered and not in docs/metrics.md", name)
		}
	}
	if n := len(names); n < 30 {
		t.Errorf("the agent registers %d metrics only", n)
	}
}

// metric is one metric on the page.
type metric struct{ name, kind, labels, help string }

var descText = regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)", constLabels: \{\}, variableLabels: \{([^}]*)\}`)

// described reads the name, help and labels of a metric.
func described(d *prometheus.Desc, kind string) metric {
	m := descText.FindStringSubmatch(d.String())
	if m == nil {
		panic("a description of another form: " + d.String())
	}
	return metric{m[1], kind, strings.ReplaceAll(m[3], ",", ", "), strings.ReplaceAll(m[2], `\"`, `"`)}
}

// captured is a Registerer that keeps the collectors, and those of a bundle one by one.
type captured struct{ collectors []prometheus.Collector }

// Register keeps c.
func (r *captured) Register(c prometheus.Collector) error {
	if b, ok := c.(stats.Bundle); ok {
		r.collectors = append(r.collectors, b...)
		return nil
	}
	r.collectors = append(r.collectors, c)
	return nil
}

// MustRegister keeps cs.
func (r *captured) MustRegister(cs ...prometheus.Collector) {
	r.collectors = append(r.collectors, cs...)
}

// Unregister does nothing.
func (*captured) Unregister(prometheus.Collector) bool { return false }

// metricsOf returns the metrics of collectors, also those without a series.
func metricsOf(t *testing.T, collectors []prometheus.Collector) (out []metric) {
	t.Helper()
	for _, c := range collectors {
		kind := stats.KindWithLabels(c)
		switch c.(type) { // package server registers vectors of package prometheus
		case *prometheus.HistogramVec:
			kind = "histogram"
		case *prometheus.CounterVec:
			kind = "counter"
		case *prometheus.GaugeVec:
			kind = "gauge"
		}
		if kind != "" {
			descs := make(chan *prometheus.Desc, 1)
			c.Describe(descs)
			out = append(out, described(<-descs, kind))
			continue
		}
		series := make(chan prometheus.Metric)
		go func() { c.Collect(series); close(series) }()
		for s := range series {
			var value dto.Metric
			if err := s.Write(&value); err != nil {
				t.Fatal(err)
			}
			if m := described(s.Desc(), kindOf(&value)); !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out
}

func kindOf(m *dto.Metric) string {
	switch {
	case m.Counter != nil:
		return "counter"
	case m.Gauge != nil:
		return "gauge"
	case m.Histogram != nil:
		return "histogram"
	case m.Summary != nil:
		return "summary"
	}
	return "untyped"
}

// gathered returns the metrics of families.
func gathered(families []*dto.MetricFamily) (out []metric) {
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		out = append(out, metric{f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp()})
	}
	return out
}

// registered runs a simulated agent, and returns its registry and the metrics in it. The simulated agent has no HTTPS server, so the
// metrics of a server are not included; they come from newServer.
func registered(t *testing.T) (reg *prometheus.Registry, found []metric) {
	t.Helper()
	reg = prometheus.NewRegistry()
	synctest.Test(t, func(t *testing.T) {
		n := simulated.New(simulated.Config{})
		defer n.Close()
		deps := n.Deps()
		deps.Metrics, deps.Log = reg, slog.New(slog.DiscardHandler)
		a, err := agent.New(agent.Config{NodeName: "n1", Kubelet: agent.DefaultConfiguration()}, deps)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		synctest.Wait()
		families, err := reg.Gather()
		if err != nil {
			t.Error(err)
		}
		found = gathered(families)
		end()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return reg, found
}

// ownCollectors returns the collectors of /metrics of an agent that runs on a real machine, uses an API server, and has an HTTPS
// server.
func ownCollectors(t *testing.T) []prometheus.Collector {
	t.Helper()
	r := &captured{}
	if _, err := stats.NewMetrics(stats.MetricsConfig{
		Registerer: r, NodeName: "n1", Version: "v1.36.3", Pods: stats.OnePod(), PullRecords: func() (int, int) { return 0, 0 },
		Tally: func() stats.Tally { return stats.Tally{Pending: map[string]int{"deferred": 1}} },
		PersistentVolumes: func() []stats.Volume {
			return []stats.Volume{{PVCNamespace: "ns", PVCName: "data", Abnormal: new(true)}}
		},
		ContainerLogs:   func() []stats.ContainerLogs { return []stats.ContainerLogs{{Container: "main"}} },
		PodCertificates: func() []stats.PodCertificates { return []stats.PodCertificates{{State: "fresh"}} },
		ImagePulls:      func() stats.ImagePulls { return stats.ImagePulls{Running: 1} },
		Volumes:         func() []stats.VolumeCount { return []stats.VolumeCount{{Plugin: "kubernetes.io/secret", Desired: 1}} },
		Startup: func() stats.Startup {
			now := time.Now()
			return stats.Startup{Boot: now, Began: now, Attempt: now, Registered: now, Ready: now}
		},
		CgroupVersion: func() int { return 2 }, MemoryKept: func() (int64, int64) { return 3, 4 },
		Gates: func() []stats.Gate { return []stats.Gate{{Name: "A", Stage: "BETA", On: true}} },
	}); err != nil {
		t.Fatal(err)
	}
	if err := stats.RegisterPlugins(r, func() []stats.PluginSocket { return []stats.PluginSocket{{Present: true}} }); err != nil {
		t.Fatal(err)
	}
	if err := stats.RegisterShutdown(r, func() (began, finished time.Time) { return began, finished }); err != nil {
		t.Fatal(err)
	}
	if _, err := stats.NewAPICalls(stats.APIConfig{Registerer: r}); err != nil {
		t.Fatal(err)
	}
	newServer(t, r)
	return r.collectors
}

// ownMetrics returns the metrics of /metrics without those of the Prometheus library.
func ownMetrics(t *testing.T) []metric {
	t.Helper()
	out := metricsOf(t, ownCollectors(t))
	_, of := registered(t)
	for _, m := range of {
		if !slices.ContainsFunc(out, func(have metric) bool { return have.name == m.name }) {
			out = append(out, m)
		}
	}
	return sorted(out)
}

func newServer(t *testing.T, r prometheus.Registerer) *server.Server {
	t.Helper()
	s, err := server.New(server.Config{
		NodeName: "n1", Authenticator: server.NewAuthenticator(server.AuthnConfig{}), Authorizer: server.AlwaysAllow{}, Pods: noPods{},
		Registerer: r, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type noPods struct{}

func (noPods) List() []*v1.Pod                          { return nil }
func (noPods) Pod(_, _ string) (*v1.Pod, bool)          { return nil, false }
func (noPods) Observed(types.UID) (*pod.Observed, bool) { return nil, false }
func (noPods) Settled() bool                            { return true }

// healthMetrics returns the metrics of /metrics/slis, after a health check has run.
func healthMetrics(t *testing.T) []metric {
	t.Helper()
	open := newServer(t, &captured{}).ReadOnlyHandler()
	open.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/healthz", nil))
	w := httptest.NewRecorder()
	open.ServeHTTP(w, httptest.NewRequest("GET", "/metrics/slis", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list []*dto.MetricFamily
	for _, f := range families {
		list = append(list, f)
	}
	return sorted(gathered(list))
}

// processMetrics returns the metrics of a process that the Prometheus library keeps.
func processMetrics(t *testing.T) []metric {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	list := sorted(gathered(families))
	for i := range list {
		list[i].help = "" // leave out the help texts of the Prometheus library
	}
	return list
}

func familyMetrics(families []stats.Family) (out []metric) {
	for _, f := range families {
		out = append(out, described(f.Desc, map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge"}[f.Kind]))
	}
	return sorted(out)
}

func sorted(list []metric) []metric {
	slices.SortFunc(list, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return list
}
