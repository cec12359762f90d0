package agenttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// These are the limits of calls to the runtime and of requests to the API server for the start of one pod, which has one container. The
// test starts many such pods at once.
const (
	callsPerStart    = 11.5
	requestsPerStart = 8.0
)

// These are the limits of calls and requests for the deletion of one pod with one container, if many are deleted at once. It needs four
// inspections of two calls each, and a fifth if the runtime's event comes after an inspection has begun, which depends on Go's scheduler
// (measured: 13.5 to 14.9 calls).
const (
	callsPerEnd    = 15.5
	requestsPerEnd = 5.5 // one of these requests is the deletion by the user
)

// These are the limits of calls and requests per minute on a node whose pods are all idle.
const (
	idleCalls    = 20.0
	idleRequests = 7.0
)

func since(before, now map[string]int, per float64) (sum float64, text string) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if n := now[name] - before[name]; n > 0 {
			sum += float64(n) / per
			parts = append(parts, fmt.Sprintf("%.2f %s", float64(n)/per, name))
		}
	}
	return sum, strings.Join(parts, ", ")
}

// TestBudgetOfCalls checks how many calls to the runtime and requests to the API server an agent makes.
func TestBudgetOfCalls(t *testing.T) {
	t.Parallel()
	const pods = 50
	cfg := Config{Kube: simkube.Config{TokenVolumes: true, Latency: 4 * time.Millisecond, WatchLatency: 8 * time.Millisecond},
		Runtime: simcri.Config{Latency: latencies()}}
	Run(t, cfg, func(w *World) {
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == "True" })
		time.Sleep(5 * time.Minute)
		within := func(what string, per, calls, requests float64, f func()) {
			cri, api := w.Runtime.AllCalls(), w.Kube.Counts()
			f()
			n, text := since(cri, w.Runtime.AllCalls(), per)
			t.Logf("%s: %.2f calls of the runtime: %s", what, n, text)
			if n > calls {
				t.Errorf("%s: %.2f calls of the runtime, the budget is %.1f", what, n, calls)
			}
			n, text = since(api, w.Kube.Counts(), per)
			t.Logf("%s: %.2f requests to the API server: %s", what, n, text)
			if n > requests {
				t.Errorf("%s: %.2f requests to the API server, the budget is %.1f", what, n, requests)
			}
		}
		names := make([]string, pods)
		within("a pod's start", pods, callsPerStart, requestsPerStart, func() {
			for i := range names {
				names[i] = fmt.Sprintf("p%03d", i)
				w.Create(Pod(names[i]))
			}
			w.WaitReady(names...)
			time.Sleep(5 * time.Second)
		})
		time.Sleep(10 * time.Minute)
		const minutes = 30
		within(fmt.Sprintf("a minute of %d pods at rest", pods), minutes, idleCalls, idleRequests, func() { time.Sleep(minutes * time.Minute) })
		within("a pod's end", pods, callsPerEnd, requestsPerEnd, func() {
			for _, name := range names {
				w.Delete(name, 1)
			}
			w.WaitGone(names...)
			time.Sleep(time.Minute)
		})
	})
}
