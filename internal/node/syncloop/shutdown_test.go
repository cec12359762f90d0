package syncloop

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
)

// A pod that the node ends stays active until nothing of it is left, and is not started again. This also holds for a pod that had
// no worker yet.
func TestPodsThatTheNodeEnds(t *testing.T) {
	t.Parallel()
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }}
	runLoop(t, b, func(l *Loop, set *podset.Set) {
		done := named("done")
		done.Status.Phase = v1.PodSucceeded
		set.Replace(pod.SourceAPI, []*v1.Pod{named("web"), done})
		time.Sleep(time.Second)
		if active := l.Active(); len(active) != 1 || active[0].Name != "web" || l.Ended("web") {
			t.Fatalf("before: %d pods are active, web has ended: %t", len(active), l.Ended("web"))
		}
		set.Upsert(pod.SourceAPI, named("late"))
		why := &decide.Stop{Reason: "Terminated", Grace: new(time.Duration), Since: time.Now()}
		l.End("web", why)
		l.End("late", why)
		l.End("unknown", why)
		synctest.Wait()
		time.Sleep(5 * time.Second)
		for _, uid := range []string{"web", "late", "unknown"} {
			if !l.Ended(named(uid).UID) {
				t.Errorf("%s has not ended", uid)
			}
		}
		if active := l.Active(); len(active) != 0 {
			t.Errorf("after: %d pods are active", len(active))
		}
		if n := b.count(&b.done, "tear-down web"); n != 1 {
			t.Errorf("done %q", b.done)
		}
	})
}

// While the machine goes down, a pod of the API is refused for good, because its controller creates another one. A static pod
// waits, and is admitted when the shutdown has been cancelled.
func TestStaticPodsWaitOutAShutdown(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	down.Store(true)
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result {
		if down.Load() {
			return admit.Result{Reason: "NodeShutdown", Passing: true}
		}
		return admit.Result{OK: true}
	}}
	runLoop(t, b, func(_ *Loop, set *podset.Set) {
		static := named("static")
		static.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile.String()}
		set.Replace(pod.SourceAPI, []*v1.Pod{named("web")})
		set.Replace(pod.SourceFile, []*v1.Pod{static})
		time.Sleep(10 * time.Second)
		down.Store(false)
		time.Sleep(10 * time.Second)
		if web, static := b.count(&b.done, "set-up web"), b.count(&b.done, "set-up static"); web != 0 || static != 1 {
			t.Errorf("set up: web %d times, static %d times; done %q", web, static, b.done)
		}
		if n := b.count(&b.events, "NodeShutdown static"); n != 0 {
			t.Errorf("events %q", b.events)
		}
	})
}
