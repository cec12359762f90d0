package pleg

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// vanishing is a runtime that lists a pod and removes it directly afterwards, because an earlier agent, which was killed, had asked
// for the removal.
type vanishing struct {
	*world
	failsFirst bool
}

func (v *vanishing) List(ctx context.Context) ([]pod.Observed, error) {
	out, err := v.world.List(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.pods)
	if v.failsFirst {
		v.inspectErr = errors.New("it is being removed")
	}
	return out, err
}

// The generator calls Notify after a pod's first inspection, even if the runtime no longer has the pod. A worker may wait for that
// inspection before it removes the rest of a pod; without the call it would wait for ever.
func TestFirstInspectionNotifiesWhateverItFinds(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			v := &vanishing{world: &world{}, failsFirst: fails}
			notified := make(chan types.UID, 100)
			v.pods, v.hang = map[types.UID]pod.Observed{}, map[types.UID]bool{}
			v.set("a", false, pod.StateExited)
			g := New(Config{Runtime: v, Log: slog.New(slog.DiscardHandler), Notify: func(uid types.UID) { notified <- uid }})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- g.Run(ctx) }()
			time.Sleep(10 * time.Second)
			cancel()
			<-done
			close(notified)
			var all []types.UID
			for uid := range notified {
				all = append(all, uid)
			}
			if !slices.Contains(all, "a") {
				t.Errorf("the inspection fails: %v: notified %q, want also the pod that is gone", fails, all)
			}
			if _, stamp := g.Get("a"); stamp.IsZero() {
				t.Errorf("the inspection fails: %v: the pod that is gone has no stamp", fails)
			}
		})
	}
}
