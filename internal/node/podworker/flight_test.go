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

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

func paceOf(t *testing.T, slots int) (w *Worker, g *Gate) {
	t.Helper()
	g = NewGate(slots, slots, func(types.UID) {})
	return &Worker{cfg: &Config{Gate: g}, work: &work{}, ref: pod.Ref{UID: "me"}}, g
}

func starting() *decide.Plan { return &decide.Plan{Do: []pod.Action{{Op: pod.OpRunSandbox}}} }

// A pod that waited for a slot at the gate and now has nothing to start must not keep the slot: ten such pods would block the
// start of all other pods on the node.
func TestAPodWithNothingToStartGivesUpItsSlot(t *testing.T) {
	t.Parallel()
	w, g := paceOf(t, 1)
	now := time.Now()
	g.Enter("other", false)
	plan := starting()
	w.pace(&decide.Input{Now: now}, plan)
	if len(plan.Do) != 0 {
		t.Fatal("started without a slot")
	}
	g.Leave("other") // "me" gets the slot, and its worker is woken
	w.pace(&decide.Input{Now: now}, &decide.Plan{})
	if !g.Enter("third", false) {
		t.Error("the slot is lost: held by a pod that has nothing to start")
	}
}

// A pod that hangs must not block the start of other pods, because one of them may be the pod network that it waits for.
func TestAPodThatHangsGivesUpItsSlot(t *testing.T) {
	t.Parallel()
	w, g := paceOf(t, 1)
	now := time.Now()
	plan := starting()
	w.pace(&decide.Input{Now: now}, plan)
	if len(plan.Do) != 1 || plan.WakeAt.IsZero() {
		t.Fatalf("plan = %+v", plan)
	}
	if g.Enter("other", false) {
		t.Fatal("two pods in one slot")
	}
	w.pace(&decide.Input{Now: plan.WakeAt, InFlight: []pod.Action{{Op: pod.OpRunSandbox}}}, &decide.Plan{})
	if !g.Enter("other", false) {
		t.Error("a sandbox that hangs keeps other pods from starting")
	}
	again := starting()
	w.pace(&decide.Input{Now: plan.WakeAt}, again)
	if len(again.Do) != 0 {
		t.Error("the pod that hung went before the one that waited")
	}
}

// A pod may get the slot for which it waited when it cannot start anything, because its inspection hangs or fails. Then it gives up the slot
// after the same time as a pod that hangs while it starts, or else a few such pods would keep all other pods from starting.
func TestAPodWhoseInspectionHangsGivesUpItsSlot(t *testing.T) {
	t.Parallel()
	w, g := paceOf(t, 1)
	now := time.Now()
	g.Enter("other", false)
	w.pace(&decide.Input{Now: now}, starting())
	plan := &decide.Plan{}
	if w.pace(&decide.Input{Now: now, Stale: true}, plan); !plan.WakeAt.IsZero() || !w.queued {
		t.Fatalf("plan = %+v, queued %t: the pod has no slot yet", plan, w.queued)
	}
	g.Leave("other") // "me" gets the slot, and its worker is woken
	if w.pace(&decide.Input{Now: now, Stale: true}, plan); plan.WakeAt.IsZero() || g.Enter("third", false) {
		t.Fatalf("plan = %+v, want the time when the pod gives up its slot", plan)
	}
	w.pace(&decide.Input{Now: plan.WakeAt, Stale: true}, &decide.Plan{})
	if !g.Enter("third", false) {
		t.Error("a pod whose inspection hangs keeps other pods from starting")
	}
	again := starting()
	if w.pace(&decide.Input{Now: plan.WakeAt.Add(time.Second)}, again); len(again.Do) != 0 {
		t.Error("two pods in one slot")
	}
}

// A pull begins only when the pod has a slot of the gate, because usually the image is present and the start follows at once. The pull
// does not keep the slot, because a real pull waits for the network, not for this machine.
func TestAPullNeedsASlotToBeginAndKeepsNone(t *testing.T) {
	t.Parallel()
	w, g := paceOf(t, 1)
	now := time.Now()
	g.Enter("other", false)
	pull := func() *decide.Plan { return &decide.Plan{Do: []pod.Action{{Op: pod.OpPullImage}}} }
	plan := pull()
	if w.pace(&decide.Input{Now: now}, plan); len(plan.Do) != 0 || !w.queued {
		t.Fatal("a pull began without a slot")
	}
	g.Leave("other")
	plan = pull()
	if w.pace(&decide.Input{Now: now}, plan); len(plan.Do) != 1 || !plan.WakeAt.IsZero() {
		t.Fatalf("plan = %+v, want the pull", plan)
	}
	if w.queued || !g.Enter("third", false) {
		t.Fatal("a pull keeps the slot")
	}
	g.Leave("third")
	plan = &decide.Plan{Do: []pod.Action{{Op: pod.OpSetUp}, {Op: pod.OpPullImage}}}
	w.pace(&decide.Input{Now: now}, plan)
	if len(plan.Do) != 2 || g.Enter("fourth", false) {
		t.Fatal("the slot is lost while something else is under way beside the pull")
	}
	g.Leave("fourth")
	w.pace(&decide.Input{Now: now, InFlight: []pod.Action{{Op: pod.OpPullImage}}}, &decide.Plan{})
	if !g.Enter("fifth", false) {
		t.Error("the pod keeps the slot although only a pull is in flight")
	}
}

// slow is a performer whose actions take a time that the test sets. It records how they ended.
type slow struct {
	still
	took  time.Duration
	mu    sync.Mutex
	ended map[pod.Op]error
}

func (s *slow) Do(ctx context.Context, job pod.Job) pod.Outcome {
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(s.took):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[job.Action.Op] = err
	return pod.Outcome{Err: err}
}

// When the agent ends, calls of RunPodSandbox, CreateContainer and StartContainer run to their end and pulls are canceled. A
// runtime that hangs delays the agent's end by only a few seconds.
func TestAgentThatEndsLeavesNothingHalfMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		took, end time.Duration
		whole     bool
	}{
		"it takes a moment": {3 * time.Second, 3 * time.Second, true},
		"it hangs":          {time.Hour, finishWithin, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &slow{took: c.took, ended: map[pod.Op]error{}}
				s.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "ns"}}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				w := New(&Config{Context: ctx, Group: &wg, Performer: s, Cache: emptyCache{}, Log: slog.New(slog.DiscardHandler)}, pod.RefOf(s.pod))
				w.rouse()
				w.begin(s.pod, &pod.Observed{}, &decide.Plan{Do: []pod.Action{{Op: pod.OpRunSandbox}, {Op: pod.OpPullImage}}})
				synctest.Wait()
				began := time.Now()
				cancel()
				wg.Wait()
				if got := time.Since(began); got != c.end {
					t.Errorf("the agent ended after %v, want %v", got, c.end)
				}
				if err := s.ended[pod.OpRunSandbox]; (err == nil) != c.whole {
					t.Errorf("run-sandbox ended with %v", err)
				}
				if s.ended[pod.OpPullImage] == nil {
					t.Error("the pull was not cut short")
				}
			})
		})
	}
}

// A worker writes no checkpoint while or after it removes the last files of its pod, so that nothing of a deleted pod stays on disk. A pod
// that was an orphan is not admitted again, even if a source has it again.
func TestNothingIsWrittenWhileAPodIsForgotten(t *testing.T) {
	t.Parallel()
	saved := &saves{}
	w := &Worker{cfg: &Config{Checkpoints: saved}, forgetting: true, memory: &decide.Memory{}}
	w.checkpoint()
	w.forgetting, w.memory.Forgotten = false, true
	w.checkpoint()
	if saved.n != 0 {
		t.Errorf("%d checkpoints written for a pod that is gone", saved.n)
	}
	w = &Worker{cfg: &Config{Checkpoints: saved}, memory: &decide.Memory{PodSettled: decide.PodSettled{Orphaned: true}}}
	if w.admit(&v1.Pod{}, &pod.Observed{}) || w.memory.Admitted {
		t.Error("a pod on its way out was admitted")
	}
}

type saves struct{ n int }

func (s *saves) Load(types.UID) (*decide.Memory, error) { return nil, nil }
func (s *saves) Save(types.UID, *decide.Memory) error   { s.n++; return nil }

// If the clock was set back while no agent ran, a checkpoint has times in the future. decide.Load corrects them, so that no back-off and
// no grace period becomes longer.
func TestTimesOfAnEarlierAgentAreSane(t *testing.T) {
	t.Parallel()
	now, policy := time.Now(), decide.DefaultPolicy()
	kept := decide.Memory{Containers: make([]decide.ContainerMemory, 1)}
	kept.StopBegan, kept.StartTime, kept.Containers[0].CrashUntil = now.Add(time.Hour), now.Add(time.Hour), now.Add(time.Hour)
	m := decide.Load(&kept, now, &policy)
	if m.StopBegan.After(now) || m.StartTime.After(now) || m.Containers[0].CrashUntil.After(now.Add(policy.BackOffMax)) {
		t.Errorf("memory = %+v", m)
	}
}
