package syncloop

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
	"github.com/wherry-node/wherry/internal/node/podworker"
	"github.com/wherry-node/wherry/internal/node/resizes"
)

// A worker reads the result of Resize without a lock, while turns of other pods decide about the same resize again. So Resize
// must return a copy. If it does not, the race detector makes this test fail.
func TestResizeAnswersWithACopy(t *testing.T) {
	t.Parallel()
	set := podset.New("node", []pod.Source{pod.SourceAPI}, func(types.UID) {})
	p := running("a", "2")
	set.Replace(pod.SourceAPI, []*v1.Pod{p})
	var mu sync.Mutex
	n := 0
	l := New(Config{Pods: set, Cache: &bare{}, Recorder: &bare{}, Log: slog.New(slog.DiscardHandler),
		Resize: func(*v1.Pod, *v1.Pod, []*v1.Pod) admit.ResizeResult {
			mu.Lock()
			defer mu.Unlock()
			n++
			return admit.ResizeResult{Reason: []string{"Deferred", "Infeasible", "No"}[n%3]}
		}})
	for _, name := range []string{"a", "b"} { // the turns of the other pod decide about the resizes again
		l.workers[types.UID(name)] = &member{known: true, Worker: retired(t)}
	}
	allocated := pod.AllocationOf(running("a", "1"))
	first, ok := l.Resize(p, allocated)
	was := first.Reason
	l.retryResizes(resizes.TriggerPeriodic)
	if !ok || first.Reason != was {
		t.Errorf("the answer %q became %q", was, first.Reason)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 500 {
			l.retryResizes(resizes.TriggerPeriodic)
		}
	})
	for range 500 {
		if r, _ := l.Resize(p, allocated); r.Reason == "" || r.OK {
			t.Errorf("answer %+v", r)
		}
	}
	wg.Wait()
}

// retired returns a worker whose agent has ended. It takes no turns.
func retired(t *testing.T) *podworker.Worker {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return podworker.New(&podworker.Config{Context: ctx}, pod.Ref{})
}
