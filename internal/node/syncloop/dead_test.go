package syncloop

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// "--maximum-dead-containers: Maximum number of old instances of containers to retain globally."
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
