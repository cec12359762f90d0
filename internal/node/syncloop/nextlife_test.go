package syncloop

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
)

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
			if last, ok := l.left.Take(uid, time.Now()); ok {
				l.left.Keep(uid, last, time.Now())
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
