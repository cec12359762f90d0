package agenttest

import (
	"flag"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// manyPods is a flag of TestPodsAreForgotten.
//
//nolint:gochecknoglobals // flags of a test binary
var manyPods = flag.Int("pods", 6000, "how many pods TestPodsAreForgotten lets come and go")

// perPod is how much the heap may grow per pod, in bytes: less than an entry of a map takes. wobble allows for random growth, such as a map
// that has just doubled or a buffer in use. What is kept for each pod makes the heap grow in every pass, so the test fails only if the heap
// grows by more than that in each of several passes, at most mostPasses. The table of texts that watched objects share has a bound, too, but
// it takes more than one pass to fill.
const (
	perPod     = 50
	wobble     = 128 << 10
	mostPasses = 8
)

// The state of an agent does not grow with the number of pods that it has ever had: neither the number of values that are reachable
// from its fields, nor the heap. The first half of the pods fills everything that has a bound; the second half must add nothing.
//
// The test measures the heap of the process, so it is not parallel.
func TestPodsAreForgotten(t *testing.T) {
	n := *manyPods
	if testing.Short() {
		n = min(n, 1200)
	}
	runCrowd(t, &checkpoint.InMemory{}, func(c *crowd) {
		reached := func() map[string]int {
			return reach(c.agent, reflect.TypeFor[*simkube.Kube](), reflect.TypeFor[*simcri.Runtime](), reflect.TypeFor[*testing.T]())
		}
		pass := func(until int) {
			began := time.Now()
			c.live(until)
			c.settle()
			t.Logf("%d pods in %s of the node's time", until, time.Since(began).Round(time.Second))
		}
		half := n / 2
		pass(half)
		before := reached()
		for passes := 2; ; passes++ {
			heap := heapAlloc() // measured after the call of reached, so that both measurements include the result of this call
			pass(passes * half)
			later := heapAlloc()
			after := reached()
			t.Logf("heap before the pass %d bytes, after it %d; %d places reached", heap, later, len(after))
			if more := grown(before, after, max(half/100, 10)); len(more) > 0 {
				t.Fatalf("after %d more pods, all of them gone, these have grown:\n%s", half, strings.Join(more, "\n"))
			}
			grew := int64(later) - int64(heap) //nolint:gosec // less than 2^63
			switch {
			case grew <= int64(max(perPod*half, wobble)):
				return
			case passes == mostPasses:
				t.Fatalf("the heap grew in each of %d passes, in the last by %d bytes with %d more pods, %d for each", passes-1, grew, half, grew/int64(half))
			}
		}
	})
}

// heapAlloc returns the size of the heap in bytes. It collects garbage three times, because finalizers and sync.Pools keep memory until a
// later collection.
func heapAlloc() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
