package syncloop

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
)

func TestLastLives(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var l lastLives[string]
	if _, ok := l.take("a", now); ok {
		t.Error("take returned state that nobody kept")
	}
	l.keep("a", "one", now)
	l.keep("b", "two", now.Add(time.Second))
	if left, ok := l.take("a", now.Add(lastLifeFor)); !ok || left != "one" {
		t.Errorf("a left %q, %t", left, ok)
	}
	if _, ok := l.take("a", now); ok {
		t.Error("take returned the same state twice")
	}
	if _, ok := l.take("b", now.Add(time.Hour)); ok {
		t.Error("take returned state that is an hour old")
	}
	for i := range 2 * lastLivesMost {
		l.keep(types.UID(fmt.Sprint(i)), "many", now)
	}
	if len(l.of) != lastLivesMost {
		t.Errorf("%d lives are remembered", len(l.of))
	}
	l.keep("late", "last", now.Add(2*lastLifeFor))
	if left, ok := l.take("late", now.Add(2*lastLifeFor)); !ok || left != "last" {
		t.Errorf("after the others had aged, %q, %t", left, ok)
	}
}

// The manifest of a static pod may come back just when the loop drops the pod's worker. So the loop must keep the state for the next life
// before it tells other parts to forget the pod. Otherwise the next life would use attempt numbers a second time.
func TestALookBesideTheEndOfALifeContinuesFromIt(t *testing.T) {
	t.Parallel()
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }}
	runLoop(t, b, func(l *Loop, set *podset.Set) {
		dropped, kept := 0, 0
		b.forgets = func(uid types.UID) {
			l.mu.Lock()
			defer l.mu.Unlock()
			dropped++
			if _, ok := l.left.of[uid]; ok {
				kept++
			}
		}
		static := named("static")
		static.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile.String()}
		set.Replace(pod.SourceAPI, nil)
		set.Replace(pod.SourceFile, []*v1.Pod{static})
		time.Sleep(time.Second)
		set.Delete(pod.SourceFile, static)
		time.Sleep(5 * time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if dropped == 0 || kept != dropped {
			t.Errorf("the pod was dropped %d times, and %d times its last life was known by then", dropped, kept)
		}
	})
}

// A static pod whose manifest comes back continues its restart counts, and its containers have the end of their last instance as
// their last state. A container that never ran has no last state.
func TestTheNextLifeHasALastState(t *testing.T) {
	t.Parallel()
	end := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, ContainerID: "containerd://a"}}
	next := afresh(&v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "ran", RestartCount: 1, ContainerID: "containerd://a", State: end},
		{Name: "never", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}},
	}}).ContainerStatuses
	if next[0].RestartCount != 2 || next[0].LastTerminationState.Terminated == nil || next[0].LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("what ran: %+v", next[0])
	}
	if next[1].RestartCount != 0 || next[1].LastTerminationState.Terminated != nil {
		t.Errorf("what never ran: %+v", next[1])
	}
}
