package stats

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// crowd is a node with a hundred pods. Each pod has three containers.
type crowd struct{ pods []*pod.Observed }

func newCrowd() crowd {
	var c crowd
	for i := range 100 {
		o := &pod.Observed{Ref: pod.Ref{Name: fmt.Sprint("p", i)}, Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}}
		for j := range 3 {
			o.Containers = append(o.Containers, pod.Container{ID: fmt.Sprint("c", j), State: pod.StateRunning})
		}
		c.pods = append(c.pods, o)
	}
	return c
}

func (c crowd) Observed() []*pod.Observed { return c.pods }

// used returns the metrics of a node after each kind of event has happened.
func used(t testing.TB) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(MetricsConfig{
		Registerer: reg, NodeName: "n1", Version: "v1.36.3", Pods: newCrowd(), CgroupVersion: func() int { return 2 },
		Tally: func() Tally { return Tally{Desired: map[bool]int{false: 100}, Pending: map[string]int{"deferred": 1}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "ListContainers", "PodSandboxStatus", "ImageStatus", "PullImage"} {
		m.Operation(method, time.Millisecond, nil)
	}
	for code := range int32(10) {
		m.ContainerEnded("container", code, "Error")
	}
	for _, operation := range []string{"create", "sync", "kill", "terminated"} {
		m.Turn(operation, time.Millisecond)
	}
	return m, reg
}

// A call that counts an event of a pod or an inspection allocates no memory. The test counts the allocations of the process, so it is
// not parallel.
func TestPlainMetricsAllocateNothing(t *testing.T) {
	m, _ := used(t)
	for name, record := range map[string]func(){
		"PodSeen":      func() { m.PodSeen(3) },
		"Orphans":      func() { m.Orphans(2, 1) },
		"Inspected":    func() { m.Inspected(time.Millisecond) },
		"Subscribed":   func() { m.Subscribed(true) },
		"EventArrived": func() { m.EventArrived(time.Millisecond) },
		"PodReady":     func() { m.PodReady(time.Second, 0, false, true) },
		"ImageVolumes": func() { m.ImageVolumes(1, false) },
		"SleepCut":     m.SleepCut,
		"StatusSent":   func() { m.StatusSent(time.Millisecond) },
	} {
		if n := testing.AllocsPerRun(100, record); n != 0 {
			t.Errorf("%s makes %v allocations", name, n)
		}
	}
}

// BenchmarkScrape reads /metrics of a node with a hundred pods.
func BenchmarkScrape(b *testing.B) {
	_, reg := used(b)
	b.ReportAllocs()
	for b.Loop() {
		families, err := reg.Gather()
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(io.Discard, f); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// The last measurements of logs need at most 60 bytes for each container of the node. The test measures the heap of the process, so it is not
// parallel.
func TestLogSizesNeedLittleMemory(t *testing.T) {
	const containers = 5000
	l := newLogSizes(at(0))
	l.most = containers + 1
	heap := func() int64 {
		var m runtime.MemStats
		for range 2 { // the second collection frees what pools kept over the first
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range containers {
		l.add(types.UID(fmt.Sprint("11111111-aaaa-bbbb-cccc-", i)), "main", uint64(i), at(1), nil)
	}
	if each := (heap() - before) / containers; each > 60 || len(l.last) != containers {
		t.Errorf("%d measurements need %d bytes each, want at most 60", len(l.last), each)
	}
	runtime.KeepAlive(&l)
}
