package podworker

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// still is a node on which every set-up waits until the test lets it end.
type still struct {
	pod    *v1.Pod
	setUps chan chan pod.Outcome
}

func (s *still) Get(types.UID) (*v1.Pod, pod.Source) { return s.pod, pod.SourceAPI }
func (*still) LastGrace(types.UID) *int64            { return nil }
func (s *still) Turn(*Turn)                          {}
func (s *still) Node(pod.Ref) decide.Node            { return decide.Node{NetworkReady: true, SourcesReady: true} }
func (s *still) Admit(*v1.Pod) (*decide.Stop, bool)  { return nil, false }
func (s *still) Resize(*v1.Pod, *pod.Allocation) (admit.ResizeResult, bool) {
	return admit.ResizeResult{OK: true}, true
}
func (s *still) Loaded(types.UID, *pod.Allocation)                                  {}
func (s *still) Probe(*v1.Pod, *pod.Observed, *decide.Memory, *decide.ProbeResults) {}
func (s *still) Load(types.UID) (*decide.Memory, error)                             { return nil, nil }
func (s *still) Save(types.UID, *decide.Memory) error                               { return nil }
func (s *still) Do(ctx context.Context, job pod.Job) pod.Outcome {
	if job.Action.Op == pod.OpSetUp {
		end := make(chan pod.Outcome)
		s.setUps <- end
		return <-end
	}
	<-ctx.Done()
	return pod.Outcome{Err: ctx.Err()}
}

// host is all that a Worker uses of its node, except the pod cache (Cache).
type host interface {
	Desired
	Performer
	Reporter
	Host
	Checkpoints
}

// onNode returns the worker of a pod on a node. At the end of the test it waits until the worker and its actions have ended.
func onNode(t *testing.T, n host, cache Cache, p *v1.Pod) *Worker {
	t.Helper()
	policy := decide.DefaultPolicy()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait) // t.Context has been canceled before the cleanup runs
	return New(&Config{
		Context: t.Context(), Group: &wg,
		Cache: cache, Desired: n, Performer: n, Reporter: n, Host: n, Checkpoints: n, Policy: func() *decide.Policy { return &policy },
		Gate: NewGate(1, 1, func(types.UID) {}), Hash: func(*v1.Pod, *v1.Container) string { return "" }, Sizes: crispec.Sizes, Log: slog.New(slog.DiscardHandler),
	}, pod.RefOf(p))
}

// emptyCache is a cache of a runtime that has no pods.
type emptyCache struct{}

func (emptyCache) Get(types.UID) (*pod.Observed, time.Time) { return &pod.Observed{}, time.Now() }
func (emptyCache) Inspect(types.UID) time.Time              { return time.Now() }

// If an object changes while a set-up of the volumes is in flight, that set-up may have read the old object. So the volumes are set up
// once more after it has ended.
func TestRefreshDuringSetUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &still{setUps: make(chan chan pod.Outcome, 10), pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "ns"},
			Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "main", Image: "i"}}},
		}}
		w := onNode(t, s, emptyCache{}, s.pod)
		w.Look("it is new")
		first := <-s.setUps
		w.Refresh("an object changed")
		synctest.Wait()
		if len(s.setUps) != 0 {
			t.Fatal("two set-ups of one pod at a time")
		}
		first <- pod.Outcome{}
		synctest.Wait()
		if len(s.setUps) != 1 {
			t.Fatal("what changed during the set-up was lost")
		}
		(<-s.setUps) <- pod.Outcome{}
		synctest.Wait()
		w.Look("nothing")
		synctest.Wait()
		if len(s.setUps) != 0 {
			t.Fatal("volumes are set up again and again")
		}
	})
}
