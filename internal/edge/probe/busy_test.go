package probe

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// crowded runs f with Probes on a machine that runs two commands at a time, and collects the reports of late probes.
func crowded(t *testing.T, f func(t *testing.T, r *rig, late *[]Lateness, behind *[]Behind)) {
	var mu sync.Mutex
	var late []Lateness
	var behind []Behind
	inBubble(t, Config{
		Work:   work.New(work.Config{Processors: 2, Most: 2}),
		Late:   func(l Lateness) { mu.Lock(); late = append(late, l); mu.Unlock() },
		Behind: func(b Behind) { mu.Lock(); behind = append(behind, b); mu.Unlock() },
	}, func(t *testing.T, r *rig) { f(t, r, &late, &behind) })
}

func (r *rig) setPods(n int, spec *v1.Container) {
	for i := range n {
		id := fmt.Sprint("c", i)
		r.Set(pod.Ref{Namespace: "ns", Name: id, UID: types.UID(id)}, []Target{{ContainerID: id, StartedAt: time.Now(), Spec: spec}})
	}
}

// Each of forty pods runs a command of 1.5 seconds every second, on a machine that runs two at a time. All probes begin very late,
// and none counts as failed. The callback Late is called once a minute per container, and the callback Behind once.
func TestLateIsNotFailed(t *testing.T) {
	crowded(t, func(t *testing.T, r *rig, late *[]Lateness, behind *[]Behind) {
		r.took = 1500 * time.Millisecond
		l := execProbe("l", 1, 0, 1)
		l.TimeoutSeconds = 2
		r.setPods(40, &v1.Container{LivenessProbe: l})
		pass(5 * time.Minute)
		for i := range 40 {
			id := fmt.Sprint("c", i)
			if s, _ := r.Result(types.UID(id), id); s.Unhealthy || !s.Ready {
				t.Errorf("%s: %+v", id, s)
			}
		}
		r.expect(t, "events", r.events, nil)
		if n := len(*late); n < 40 || n > 40*5 {
			t.Errorf("Late was called %d times", n)
		}
		if worst := (*late)[len(*late)-1]; worst.Late < 5*time.Second || worst.Kind != Liveness {
			t.Errorf("the last: %+v", worst)
		}
		if len(*behind) != 1 || (*behind)[0].Late*2 < (*behind)[0].Runs {
			t.Errorf("Behind was called with %+v, want one call", *behind)
		}
		if r.top > 2*4 { // the scheduler counts a command only for a bounded time, so more than two commands may run
			t.Errorf("%d at once", r.top)
		}
	})
}

// A new pod is probed soon, although the machine is busy with probes of pods that are ready.
func TestFirstProbesGoFirst(t *testing.T) {
	crowded(t, func(t *testing.T, r *rig, _ *[]Lateness, _ *[]Behind) {
		r.took = 200 * time.Millisecond
		r.setPods(100, &v1.Container{ReadinessProbe: execProbe("old", 1, 0, 3)})
		pass(time.Minute)
		r.Set(ref, []Target{{ContainerID: "new", StartedAt: time.Now(), Spec: &v1.Container{ReadinessProbe: execProbe("new", 10, 0, 3)}}})
		pass(700 * time.Millisecond)
		if s, _ := r.Result("u", "new"); !s.Ready {
			t.Error("it is not ready yet")
		}
	})
}

// The command of a probe that waits in the scheduler of package work never runs if its pod is forgotten or the agent ends.
func TestForgottenWhileWaiting(t *testing.T) {
	crowded(t, func(t *testing.T, r *rig, _ *[]Lateness, _ *[]Behind) {
		r.took = 900 * time.Millisecond
		r.setPods(10, &v1.Container{LivenessProbe: execProbe("l", 1, 1, 1)})
		pass(1100 * time.Millisecond) // two commands run, eight wait in the scheduler
		for i := range 9 {
			r.Forget(types.UID(fmt.Sprint("c", i)))
		}
		pass(2 * time.Second)
		for _, e := range r.execs[2:] {
			if !strings.Contains(e, "c9") {
				t.Errorf("%s runs", e)
			}
		}
		r.setPods(10, &v1.Container{LivenessProbe: execProbe("l", 1, 1, 1)})
		pass(1100 * time.Millisecond)
	})
}

// Two equal probes of one container at the same time share one run and its result.
func TestIdenticalProbesRunOnce(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.took = 100 * time.Millisecond
		r.answer = func(at time.Duration, _ string, _ []string) (int32, error) {
			if at > 15*time.Second {
				return 1, nil
			}
			return 0, nil
		}
		spec := &v1.Container{LivenessProbe: execProbe("same", 10, 0, 2), ReadinessProbe: execProbe("same", 10, 0, 1)}
		target := Target{ContainerID: "c1", StartedAt: time.Now(), Spec: spec}
		r.Set(ref, []Target{target})
		pass(25 * time.Second)
		if s, _ := r.Result("u", "c1"); s.Ready || s.Unhealthy {
			t.Errorf("after one failure: %+v", s)
		}
		r.expect(t, "execs", r.execs, []string{"0s c1 same", "10s c1 same", "20s c1 same"})
		pass(10 * time.Second)
		if s, _ := r.Result("u", "c1"); s.Ready || !s.Unhealthy {
			t.Errorf("after two failures: %+v", s)
		}
		if len(r.results) != 7 {
			t.Errorf("%q: each probe is counted", r.results)
		}
		// A probe with a different command or a different timeout does not share the run.
		other := execProbe("same", 10, 0, 1)
		other.TimeoutSeconds = 5
		r.execs = nil
		r.Set(ref, []Target{{ContainerID: "c2", StartedAt: time.Now(), Initial: &Initial{Started: true, Ready: true}, Spec: &v1.Container{LivenessProbe: execProbe("same", 10, 0, 9), ReadinessProbe: other}}})
		pass(11 * time.Second)
		if len(r.execs) != 2 {
			t.Errorf("%q", r.execs)
		}
	})
}

// Two equal probes share one command. If the probe that started the command is halted, as a liveness probe is in a pod that ends,
// the other probe still gets the result.
func TestTheTwinContinues(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.took = 500 * time.Millisecond
		spec := &v1.Container{LivenessProbe: execProbe("same", 10, 0, 1), ReadinessProbe: execProbe("same", 10, 0, 1)}
		target := Target{ContainerID: "c1", StartedAt: time.Now(), Spec: spec, Initial: &Initial{Started: true, Ready: true}}
		r.Set(ref, []Target{target})
		pass(10*time.Second + 100*time.Millisecond)
		target.Terminating = true
		r.Set(ref, []Target{target})
		pass(time.Minute)
		synctest.Wait()
		if s, _ := r.Result("u", "c1"); !s.Ready {
			t.Errorf("%+v", s)
		}
		if len(r.execs) < 6 || len(r.events) > 0 {
			t.Errorf("%q %q", r.execs, r.events)
		}
	})
}
