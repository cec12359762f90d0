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

// Flags of TestPodsAreForgotten.
//
//nolint:gochecknoglobals // flags of a test binary
var manyPods = flag.Int("pods", 6000, "how many pods TestPodsAreForgotten lets come and go")

// perPod is how many bytes the heap may grow by with each pod: less than any entry of a map takes. What comes by chance (a map
// that has just doubled, a buffer in use) is not more than wobble.
const (
	perPod = 50
	wobble = 128 << 10
)

// What an agent holds does not grow with the pods that it ever had: neither what can be reached from it by its fields, nor
// the heap. The first half of the pods fills what is bounded; the second must leave nothing.
//
// It is not parallel: the heap is that of the process.
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
		pass(n / 2)
		before := reached()
		heap := heapAlloc() // with what was reached, as below
		pass(n)
		later := heapAlloc()
		after := reached()
		t.Logf("heap after %d pods %d bytes, after %d pods %d; %d places reached", n/2, heap, n, later, len(after))
		if more := grown(before, after, max(n/2/100, 10)); len(more) > 0 {
			t.Errorf("with %d more pods, of which none is left, there is more than before in\n%s", n/2, strings.Join(more, "\n"))
		}
		if grew := int64(later) - int64(heap); grew > int64(max(perPod*n/2, wobble)) { //nolint:gosec // less than 2^63
			t.Errorf("the heap grew by %d bytes with %d more pods, %d for each", grew, n/2, grew/int64(n/2))
		}
	})
}

// heapAlloc is what the heap holds: what finalizers and pools held back is gone with the second collection.
func heapAlloc() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
