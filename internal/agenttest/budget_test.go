package agenttest

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/simcri"
	"github.com/wherry-node/wherry/internal/simkube"
)

// What an idle pod may cost its agent: no goroutine, and this much heap with the pod object that the watch decoded.
// What the simulated runtime and API server hold is theirs.
const bytesPerIdlePod = 17 << 10

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBudgetOfAnIdlePod is not parallel: it measures the process. With WHERRY_HEAP_PROFILE it writes a profile there.
func TestBudgetOfAnIdlePod(t *testing.T) { //nolint:paralleltest // it measures the process
	const pods = 200
	cfg := Config{
		Agent:   func(c *agent.Config) { c.Kubelet.MaxPods = pods + 50 },
		Kube:    simkube.Config{TokenVolumes: true},
		Runtime: simcri.Config{Latency: latencies()},
	}
	Run(t, cfg, func(w *World) {
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == "True" })
		time.Sleep(time.Minute)
		empty := runtime.NumGoroutine()
		names := make([]string, pods)
		for i := range names {
			names[i] = fmt.Sprintf("p%03d", i)
			w.Create(Pod(names[i]))
		}
		w.WaitReady(names...)
		time.Sleep(20 * time.Minute)
		goroutines := runtime.NumGoroutine() - empty
		if path := os.Getenv("WHERRY_HEAP_PROFILE"); path != "" {
			writeHeap(t, path)
		}
		calls, requests := w.Runtime.Calls("PodSandboxStatus"), w.Kube.Total()
		time.Sleep(10 * time.Minute)
		if n := w.Runtime.Calls("PodSandboxStatus") - calls; n > 0 {
			t.Errorf("%d inspections of idle pods in 10 minutes", n)
		}
		if n := w.Kube.Total() - requests; n > 130+pods/2 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		full := heap()
		w.StopAgent()
		time.Sleep(3 * time.Hour) // stopped timers stay in the bubble's heap, with all that they hold, until their time
		perPod := (full - heap()) / pods
		if path := os.Getenv("WHERRY_HEAP_PROFILE"); path != "" {
			writeHeap(t, path+".without")
		}
		t.Logf("per idle pod: %.2f goroutines, %d bytes of heap", float64(goroutines)/pods, perPod)
		if goroutines > 8 {
			t.Errorf("%d goroutines more with %d idle pods", goroutines, pods)
		}
		if perPod > bytesPerIdlePod {
			t.Errorf("%d bytes of heap per idle pod, the budget is %d", perPod, bytesPerIdlePod)
		}
	})
}

func writeHeap(t *testing.T, path string) {
	t.Helper()
	runtime.GC()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := pprof.WriteHeapProfile(f); err != nil {
		t.Fatal(err)
	}
}
