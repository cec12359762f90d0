package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The first status is delayed so that further changes can be sent with it, but not while a caller of First waits for it. First
// does not wait long for a pod whose status is in the API already, for an unknown pod, or while the API server is away.
func TestFirstStatusThatIsWaitedFor(t *testing.T) {
	a, b := aPod("a"), aPod("b")
	starting := func(reason string) v1.PodStatus {
		now := metav1.Now()
		return v1.PodStatus{Phase: v1.PodPending, StartTime: &now, ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}}}
	}
	inBubble(t, newAPI(a, b), 1, func(t *testing.T, r *rig) {
		took := func(what string, p *v1.Pod, most time.Duration) {
			t.Helper()
			began := time.Now()
			r.First(t.Context(), p.UID)
			if d := time.Since(began); d > most {
				t.Errorf("%s: waited %v, want at most %v", what, d, most)
			}
		}
		took("unknown", a, 100*time.Millisecond)
		r.Set(Desired{Pod: a, Status: starting("ContainerCreating"), Queued: true})
		go func() {
			time.Sleep(20 * time.Millisecond)
			r.Set(Desired{Pod: a, Status: starting("ErrImagePull"), Queued: true})
		}()
		took("starting", a, 60*time.Millisecond)
		r.expect(t, "PATCH a Pending")
		if s := r.api.get("a").Status.ContainerStatuses; len(s) != 1 || s[0].State.Waiting.Reason != "ErrImagePull" {
			t.Errorf("the first status says %+v", s)
		}
		took("known", a, 0)
		go func() {
			time.Sleep(50 * time.Millisecond)
			r.Set(Desired{Pod: b, Status: starting("ContainerCreating")})
		}()
		took("set a little later", b, 60*time.Millisecond)
		r.expect(t, "PATCH a Pending", "PATCH b Pending")
		if len(r.firsts) != 0 {
			t.Errorf("%d waits are left", len(r.firsts))
		}
	})
}
