package stats

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Probed holds the metrics of /metrics/probes: how often the probes of the node's containers succeeded and failed, and
// how long they took. It uses a registry of its own, because its series come and go with pods. Methods may be called
// concurrently and never block.
type Probed struct {
	total *amounts
	took  *distributions // this metric has no label pod_uid, because dashboards expect it without this label

	mu    sync.Mutex
	names map[types.UID]pod.Ref // the names of the pods that have series in took
}

// NewProbed returns a Probed without any series.
func NewProbed() *Probed {
	return &Probed{
		total: counters("prober_probe_total", "Checks of a liveness, readiness or startup probe of a container, by result",
			"probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		took: histograms("prober_probe_duration_seconds", "Seconds that one check of a probe took", prometheus.DefBuckets,
			"probe_type", "container", "pod", "namespace"),
	}
}

// Ran records one run of a probe. Kind is Liveness, Readiness or Startup; result is successful, failed or unknown.
func (p *Probed) Ran(ref pod.Ref, container, kind, result string, took time.Duration) {
	p.total.WithLabelValues(kind, result, container, ref.Name, ref.Namespace, string(ref.UID)).Inc()
	p.took.WithLabelValues(kind, container, ref.Name, ref.Namespace).Observe(took.Seconds())
	p.mu.Lock()
	if p.names == nil {
		p.names = map[types.UID]pod.Ref{}
	}
	p.names[ref.UID] = ref
	p.mu.Unlock()
}

// Forget drops the series of a pod that is gone.
func (p *Probed) Forget(uid types.UID) {
	p.total.forget(func(labels []string) bool { return labels[5] == string(uid) })
	p.mu.Lock()
	ref, ran := p.names[uid]
	delete(p.names, uid)
	p.mu.Unlock()
	if ran {
		p.took.forget(func(labels []string) bool { return labels[2] == ref.Name && labels[3] == ref.Namespace })
	}
}

// Handler serves the metrics.
func (p *Probed) Handler() http.Handler {
	return serve(promhttp.HandlerOpts{}, Bundle{p.total, p.took})
}
