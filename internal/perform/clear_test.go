package perform

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/wherry-node/wherry/internal/pod"
)

// Where many pods end at once, few removals are under way, each gets its turn, and one that waits can be canceled.
func TestRemovalsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{})
		var mu sync.Mutex
		under, done := 0, 0
		release := make(chan struct{})
		do := func(context.Context, pod.Job) pod.Outcome {
			mu.Lock()
			under++
			mu.Unlock()
			<-release
			mu.Lock()
			done++
			mu.Unlock()
			return pod.Outcome{}
		}
		var wg sync.WaitGroup
		for range 3 * removalPlaces {
			wg.Go(func() { x.remove(t.Context(), pod.Job{}, do) })
		}
		synctest.Wait()
		if under != removalPlaces {
			t.Errorf("%d removals under way, want %d", under, removalPlaces)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if o := x.remove(ctx, pod.Job{}, do); o.Err == nil {
			t.Error("a canceled removal that waits for its turn succeeded")
		}
		close(release)
		wg.Wait()
		if done != 3*removalPlaces {
			t.Errorf("%d removals done, want %d", done, 3*removalPlaces)
		}
	})
}
