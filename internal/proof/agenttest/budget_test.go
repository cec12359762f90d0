package agenttest

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// What an idle pod may cost its agent besides: no goroutine, no timer, and this much heap beyond the pod object that the
// watch decoded and the timeline. What the simulated runtime and API server hold is theirs; what an agent without pods
// holds, and the bounded memory of the events it wrote, is counted apart. Who has it, in bytes: what the runtime last said
// (pod.Observed) 560, its worker 210 with what it remembers at rest 230, its token 135, its status writer 135, its place in
// the sync loop 120, pleg 90, its references 70, the set of pods 50, and small strings and maps.
const bytesPerIdlePod = 2048

// timelineOfIdlePod is what the timeline of a pod that was started and rests takes: 16 records and their texts.
const timelineOfIdlePod = 2400

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBudgetOfAnIdlePod is not parallel: it measures the process. With WHERRY_HEAP_PROFILE it writes a profile there.
func TestBudgetOfAnIdlePod(t *testing.T) { //nolint:paralleltest // it measures the process
	// Both have more events than are remembered, so that these cost both the same.
	const few, many = 150, 650
	less, object := idlePods(t, few)
	more, _ := idlePods(t, many)
	perPod := (more - less) / (many - few)
	besides := perPod - object - timelineOfIdlePod
	t.Logf("per idle pod %d bytes of heap: its object %d, its timeline %d, besides %d; an agent without pods and its events: %d",
		perPod, object, timelineOfIdlePod, besides, less-few*perPod)
	if besides > bytesPerIdlePod {
		t.Errorf("%d bytes of heap per idle pod besides its object and its timeline, the budget is %d", besides, bytesPerIdlePod)
	}
}

// idlePods returns the heap that an agent takes with so many pods at rest, and what one of their objects takes.
func idlePods(t *testing.T, pods int) (all, object int64) {
	cfg := Config{
		Agent:   func(c *agent.Config) { c.Kubelet.MaxPods = int32(pods + 50) },
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
		object = objectBytes(t, w)
		calls, requests := w.Runtime.Calls("PodSandboxStatus"), w.Kube.Total()
		time.Sleep(10 * time.Minute)
		if n := w.Runtime.Calls("PodSandboxStatus") - calls; n > 0 {
			t.Errorf("%d inspections of idle pods in 10 minutes", n)
		}
		if n := w.Kube.Total() - requests; n > 130+pods/2 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		if goroutines > 8 {
			t.Errorf("%d goroutines more with %d idle pods", goroutines, pods)
		}
		path := os.Getenv("WHERRY_HEAP_PROFILE")
		if path != "" {
			writeHeap(t, path)
		}
		full := heap()
		w.StopAgent()
		time.Sleep(3 * time.Hour) // stopped timers stay in the bubble's heap, with all that they hold, until their time
		all = full - heap()
		if path != "" {
			writeHeap(t, path+".without")
		}
	})
	return all, object
}

// objectBytes is what a pod object takes that was decoded from what the API server sends.
func objectBytes(t *testing.T, w *World) int64 {
	raw, err := json.Marshal(w.Kube.Pod(Namespace, "p000"))
	if err != nil {
		t.Fatal(err)
	}
	objects := make([]*v1.Pod, 200)
	before := heap()
	for i := range objects {
		objects[i] = &v1.Pod{} // each by itself, as a watch makes them
		if err := json.Unmarshal(raw, objects[i]); err != nil {
			t.Fatal(err)
		}
	}
	size := (heap() - before) / int64(len(objects))
	runtime.KeepAlive(objects)
	return size
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
