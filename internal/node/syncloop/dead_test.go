package syncloop

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
)

// excessDead returns the oldest dead containers of the node beyond the limit. Upstream's flag --maximum-dead-containers is the "Maximum
// number of old instances of containers to retain globally."
func TestExcessDead(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	all := []*pod.Observed{
		{Ref: pod.Ref{UID: "a"}, Containers: []pod.Container{
			{ID: "a2", Name: "m", Attempt: 2, State: pod.StateRunning}, {ID: "a1", Name: "m", Attempt: 1, State: pod.StateExited, FinishedAt: at(5)},
			{ID: "a0", Name: "m", State: pod.StateExited, FinishedAt: at(1)},
		}},
		{Ref: pod.Ref{UID: "b"}, Containers: []pod.Container{
			{ID: "b1", Name: "m", Attempt: 1, State: pod.StateExited, FinishedAt: at(0)}, // the newest attempt is kept
			{ID: "b0", Name: "m", State: pod.StateExited, FinishedAt: at(3)},
		}},
	}
	for limit, want := range map[int]map[types.UID][]string{
		5: nil, 3: nil, 2: {"a": {"a0"}}, 1: {"a": {"a0"}, "b": {"b0"}}, 0: {"a": {"a0", "a1"}, "b": {"b0"}},
	} {
		if diff := cmp.Diff(want, excessDead(all, limit)); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

// RemoveDead marks a dead container for removal because the disk is short of space. Then limitDead finds that the node does not exceed
// MaxDeadContainers. The mark must stay.
func TestDeadContainersGoForEitherReason(t *testing.T) {
	t.Parallel()
	ref := pod.Ref{Namespace: "default", Name: "web", UID: "web"}
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }, holds: []*pod.Observed{{Ref: ref, Containers: []pod.Container{
		{ID: "1", Name: "m", Attempt: 1, State: pod.StateRunning}, {ID: "0", Name: "m", State: pod.StateExited},
	}}}}
	runLoop(t, b, func(l *Loop, set *podset.Set) {
		set.Replace(pod.SourceAPI, []*v1.Pod{named("web")})
		l.cfg.MaxDeadContainers = new(5)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if n := l.RemoveDead(ctx); n != 0 {
			t.Errorf("%d are gone, but this node removes none", n)
		}
		l.limitDead()
		if got := l.Node(ref).Excess; !slices.Equal(got, []string{"0"}) {
			t.Errorf("dead containers that must go: %q", got)
		}
	})
}
