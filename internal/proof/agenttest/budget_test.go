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

// bytesPerIdlePod bounds the heap that an agent needs for an idle pod. An idle pod has no goroutine and no timer. The bound does not
// include the pod object that the watch decoded, the timeline, the simulated runtime and API server, the heap of an agent without pods, and
// the bounded memory of events. The bytes of each part: the last inspection (pod.Observed) 560, the worker 210 with its memory at rest 230,
// the token 135, the status writer 135, the entry in the sync loop 120, pleg 90, references to objects 70, the set of pods 50, and small
// strings and maps.
const bytesPerIdlePod = 2048

// timelineOfIdlePod is the size, in bytes, of the timeline of a pod that has started and is idle: 16 records and their texts.
const timelineOfIdlePod = 2400

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBudgetOfAnIdlePod measures the heap of the process, so it is not parallel. If the environment variable WHERRY_HEAP_PROFILE is set,
// the test writes a heap profile to that path.
func TestBudgetOfAnIdlePod(t *testing.T) { //nolint:paralleltest // it measures the process
	// Both numbers of pods make more events than the agent keeps, so the memory of events is the same in both measurements.
	const few, many = 150, 650
	less, object := idlePods(t, few)
	more, _ := idlePods(t, many)
	perPod := (more - less) / (many - few)
	besides := perPod - object - timelineOfIdlePod
	t.Logf("per idle pod %d bytes of heap: its object %d, its timeline %d, besides %d; an agent without pods and its events: %d",
		perPod, object, timelineOfIdlePod, besides, less-few*perPod)
	if perPod < object {
		t.Errorf("a pod has less heap than its object: something holds the agent that was stopped, so that nothing is measured")
	}
	if besides > bytesPerIdlePod {
		t.Errorf("%d bytes of heap per idle pod besides its object and its timeline, the budget is %d", besides, bytesPerIdlePod)
	}
}

// idlePods returns the heap of an agent with this many idle pods, and the size of one pod object, both in bytes.
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
			t.Errorf("%d more goroutines with %d idle pods", goroutines, pods)
		}
		path := os.Getenv("WHERRY_HEAP_PROFILE")
		if path != "" {
			writeHeap(t, path)
		}
		full := heap()
		w.StopAgent()
		time.Sleep(3 * time.Hour) // in a bubble, a stopped timer and everything that it refers to stay in the heap until the timer's time
		all = full - heap()
		if path != "" {
			writeHeap(t, path+".without")
		}
	})
	return all, object
}

// objectBytes returns the size, in bytes, of a pod object that is decoded from JSON.
func objectBytes(t *testing.T, w *World) int64 {
	raw, err := json.Marshal(w.Kube.Pod(Namespace, "p000"))
	if err != nil {
		t.Fatal(err)
	}
	objects := make([]*v1.Pod, 200)
	before := heap()
	for i := range objects {
		objects[i] = &v1.Pod{} // one allocation for each pod, as when a watch decodes it
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
