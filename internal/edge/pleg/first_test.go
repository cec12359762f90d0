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

// vanishing is a runtime that ends the removal of a pod, which a killed agent had asked for, right after it was listed.
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

// Whoever asked before a pod's first inspection could be told nothing, so he is told when it is over, also when there is
// nothing left to see. (A worker that waits for a pod's first inspection, to remove what is left of it, waited for ever.)
func TestFirstInspectionIsToldWhateverItFinds(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			v := &vanishing{world: &world{}, failsFirst: fails}
			told := make(chan types.UID, 100)
			v.pods, v.hang = map[types.UID]pod.Observed{}, map[types.UID]bool{}
			v.set("a", false, pod.StateExited)
			g := New(Config{Runtime: v, Log: slog.New(slog.DiscardHandler), Notify: func(uid types.UID) { told <- uid }})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- g.Run(ctx) }()
			time.Sleep(10 * time.Second)
			cancel()
			<-done
			close(told)
			var all []types.UID
			for uid := range told {
				all = append(all, uid)
			}
			if !slices.Contains(all, "a") {
				t.Errorf("the inspection fails: %v: told of %q, want also the pod that has gone", fails, all)
			}
			if _, stamp := g.Get("a"); stamp.IsZero() {
				t.Errorf("the inspection fails: %v: the pod that has gone has no stamp", fails)
			}
		})
	}
}
