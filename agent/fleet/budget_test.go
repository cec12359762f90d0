package fleet_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
)

// These limit the cost of one node of a fleet with ten idle pods: its agent, its runtime, and its part of the shared watches. The HTTPS API
// and the real HTTP transport cost more, but a test in virtual time (synctest) has neither: see docs/fleet.md.
const (
	goroutinesPerNode = 0
	bytesPerNode      = 160 << 10
)

// The fleets whose cost is measured have this many nodes, and this many pods on each of them.
const (
	budgetNodes = 20
	budgetPods  = 10
)

// TestBudgetOfANode measures goroutines and heap of an idle fleet and fails if one node costs more than its budget. It is not parallel,
// because it measures the whole process. With WHERRY_HEAP_PROFILE it writes a heap profile to that path, and one of the heap without the
// fleet to that path with .base, for the option -base of go tool pprof.
func TestBudgetOfANode(t *testing.T) { //nolint:paralleltest // it measures the process
	checkBudget(t, func(t *testing.T, b *bench) {
		b.createPods(t, "p", v1.ResourceRequirements{})
	})
}

// TestBudgetOfANodeWithLimits measures a node whose pods request and limit CPU and memory, as most pods of a cluster do.
func TestBudgetOfANodeWithLimits(t *testing.T) { //nolint:paralleltest // it measures the process
	checkBudget(t, func(t *testing.T, b *bench) {
		list := func(cpu, memory string) v1.ResourceList {
			return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
		}
		b.createPods(t, "p", v1.ResourceRequirements{Requests: list("100m", "64Mi"), Limits: list("200m", "128Mi")})
	})
}

// A node on which many pods have come and gone costs no more than one where only the present pods have been.
func TestBudgetAfterBusyHours(t *testing.T) { //nolint:paralleltest // it measures the process
	checkBudget(t, func(t *testing.T, b *bench) {
		for round := range 5 {
			b.createPods(t, fmt.Sprintf("round%d-", round), v1.ResourceRequirements{})
			if err := b.admin.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}, metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			b.until(t, "all are gone", func(s fleet.Status) bool { return s.Pods.Deletions == (round+1)*budgetNodes*budgetPods })
		}
		b.createPods(t, "p", v1.ResourceRequirements{})
		time.Sleep(time.Hour)
	})
}

// createPods creates the pods of all nodes, whose containers have the given resources, and waits until they run.
func (b *bench) createPods(t *testing.T, prefix string, each v1.ResourceRequirements) {
	t.Helper()
	for i := range budgetNodes * budgetPods {
		_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", prefix, i), Labels: map[string]string{"app": "x"}},
			Spec:       v1.PodSpec{NodeName: fmt.Sprintf("f-node-%d", i/budgetPods+1), Containers: []v1.Container{{Name: "app", Image: "registry.example/app:1", Resources: each}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.until(t, "all run", func(s fleet.Status) bool { return s.Pods.Running == budgetNodes*budgetPods })
}

// checkBudget measures a fleet 20 minutes after play has ended.
func checkBudget(t *testing.T, play func(t *testing.T, b *bench)) {
	t.Helper()
	const nodes, pods = budgetNodes, budgetPods
	var goroutines int
	var bytes int64
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: nodes}}, Keep: true})
		b.until(t, "all join", settled)
		play(t, b)
		time.Sleep(20 * time.Minute)
		b.kube.ExpireEvents() // so that the API server in memory keeps no events and no history in either measurement of the heap
		synctest.Wait()
		goroutines = runtime.NumGoroutine() - before
		full := heap()
		if path := os.Getenv("WHERRY_HEAP_PROFILE"); path != "" {
			writeProfile(t, path)
		}
		b.end(t)
		b.fleet = nil
		time.Sleep(3 * time.Hour) // in a synctest bubble, a stopped timer keeps all that it refers to in the heap until it would have fired
		b.kube.ExpireEvents()
		bytes = full - heap()
		runtime.KeepAlive(b) // the API server in memory and its objects are no part of a node's cost
		if path := os.Getenv("WHERRY_HEAP_PROFILE"); path != "" {
			writeProfile(t, path+".base")
		}
	})
	t.Logf("per node with %d pods: %.1f goroutines, %d KiB of heap", pods, float64(goroutines)/nodes, bytes/nodes>>10)
	const shared = 12 // goroutines that the fleet and the API server in memory use once, not for each node
	if goroutines > nodes*goroutinesPerNode+shared {
		t.Errorf("%d goroutines of %d idle nodes, the budget is %d for each and %d for all", goroutines, nodes, goroutinesPerNode, shared)
	}
	switch each := bytes / nodes; {
	case each > bytesPerNode:
		t.Errorf("%d bytes of heap per node, the budget is %d", each, bytesPerNode)
	case each < 20<<10:
		t.Errorf("%d bytes of heap per node: something holds the fleet that has ended, so that nothing is measured", each)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func writeProfile(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := pprof.WriteHeapProfile(f); err != nil {
		t.Fatal(err)
	}
}
