package stats

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// setAt is a clock that was half an hour behind, and was set to a day ahead at an instant.
type setAt time.Time

func (s setAt) Shows(t time.Time) time.Time {
	if t.Before(time.Time(s)) {
		return t.Add(-30 * time.Minute)
	}
	return t.AddDate(0, 0, 1)
}

func (setAt) Instant(shown time.Time) time.Time { return shown.AddDate(0, 0, -1) }

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
		c.Clock = nodeclock.Of(setAt(began))
		machine := c.Machine()
		machine.BootTime = began.Add(-2 * time.Hour)
		c.Machine = func() Machine { return machine }
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
		if !c.StartTime.Time.Equal(began.Add(-90*time.Minute)) || !p.StartTime.Time.Equal(began.Add(-90*time.Minute)) {
			t.Errorf("the pod and the container started when the clock was behind, but the summary has %s and %s", p.StartTime, c.StartTime)
		}
		if boot := sum.Node.StartTime.Time; !boot.Equal(began.Add(-150 * time.Minute)) {
			t.Errorf("the machine booted when the clock was behind, but the summary has %s", boot)
		}
		if rate := c.CPU.UsageNanoCores; i > 0 && (rate == nil || *rate != 5e8) {
			t.Errorf("reading %d: the container uses %v nanocores", i, rate)
		}
		w := httptest.NewRecorder()
		s.Resource().ServeHTTP(w, httptest.NewRequest("GET", "/metrics/resource", nil))
		started := fmt.Sprintf("container_start_time_seconds{container=\"c\",namespace=\"default\",pod=\"p\"} %g\n", float64(began.Add(-90*time.Minute).Unix()))
		if stamp := want.UnixMilli(); strings.Count(w.Body.String(), " "+strconv.FormatInt(stamp, 10)+"\n") < 4 || !strings.Contains(w.Body.String(), started) {
			t.Errorf("reading %d: the metrics have other times than %d and %s:\n%s", i, stamp, started, w.Body)
		}
		w = httptest.NewRecorder()
		s.CAdvisor().ServeHTTP(w, httptest.NewRequest("GET", "/metrics/cadvisor", nil))
		for _, line := range []string{
			fmt.Sprintf("container_start_time_seconds{container=\"c\",id=\"/podu/c\",image=\"\",name=\"c\",namespace=\"default\",pod=\"p\"} %g\n", float64(began.Add(-90*time.Minute).Unix())),
			fmt.Sprintf("container_last_seen{container=\"c\",id=\"/podu/c\",image=\"\",name=\"c\",namespace=\"default\",pod=\"p\"} %g %d\n", float64(want.Unix()), want.UnixMilli()),
		} {
			if !strings.Contains(w.Body.String(), line) {
				t.Errorf("reading %d: the metrics have no line %s%s", i, line, w.Body)
			}
		}
	}
}
