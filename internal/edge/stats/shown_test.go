package stats

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// The times of the summary and of metrics are those of the node's clock, each once. The rates are those of the time that has passed.
func TestTimesOfTheNodesClock(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	now := began
	o := &pod.Observed{
		Ref: pod.Ref{Namespace: "default", Name: "p", UID: "u"}, Sandboxes: []pod.Sandbox{{ID: "s", Ready: true, CreatedAt: began.Add(-time.Hour)}},
		Containers: []pod.Container{{ID: "c", Name: "c", State: pod.StateRunning, CreatedAt: began.Add(-time.Hour), StartedAt: began.Add(-time.Hour)}},
	}
	stub := &runtimeStub{}
	s := newStats(t, func(c *Config) {
		c.HostRoot, c.Runtime, c.Pods, c.Now = t.TempDir(), stub, podsFunc(func() []*pod.Observed { return []*pod.Observed{o} }), func() time.Time { return now }
		c.Shows = func(t time.Time) time.Time { // set ahead by a day
			if t.Before(began) {
				return t
			}
			return t.AddDate(0, 0, 1)
		}
	})
	for i := range uint64(3) { // a container uses half a processor
		now = began.Add(time.Duration(i) * 10 * time.Second)
		stub.containers = []*runtimeapi.ContainerStats{{
			Attributes: &runtimeapi.ContainerAttributes{Id: "c"},
			Cpu:        &runtimeapi.CpuUsage{Timestamp: now.UnixNano(), UsageCoreNanoSeconds: number(1e12 + i*5e9)},
			Memory:     &runtimeapi.MemoryUsage{Timestamp: now.UnixNano(), WorkingSetBytes: number(1 << 20)},
		}}
		want := now.AddDate(0, 0, 1)
		sum := s.Read(t.Context())
		p := sum.Pods[0]
		c := p.Containers[0]
		for what, at := range map[string]time.Time{"node": sum.Node.CPU.Time.Time, "pod": p.CPU.Time.Time, "container": c.CPU.Time.Time, "memory": c.Memory.Time.Time} {
			if !at.Equal(want) {
				t.Errorf("reading %d: the time of %s is %s, want %s", i, what, at, want)
			}
		}
		if !c.StartTime.Time.Equal(began.Add(-time.Hour)) || !p.StartTime.Time.Equal(began.Add(-time.Hour)) {
			t.Errorf("the pod and the container started before the clock was set, but the summary has %s and %s", p.StartTime, c.StartTime)
		}
		if rate := c.CPU.UsageNanoCores; i > 0 && (rate == nil || *rate != 5e8) {
			t.Errorf("reading %d: the container uses %v nanocores", i, rate)
		}
		w := httptest.NewRecorder()
		s.Resource().ServeHTTP(w, httptest.NewRequest("GET", "/metrics/resource", nil))
		if stamp := want.UnixMilli(); strings.Count(w.Body.String(), " "+strconv.FormatInt(stamp, 10)+"\n") < 4 {
			t.Errorf("reading %d: the metrics have other times than %d:\n%s", i, stamp, w.Body)
		}
	}
}
