package pleg

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// breaking is a runtime whose first subscriptions break.
type breaking struct {
	*world
	mu     sync.Mutex
	breaks int
}

func (b *breaking) Watch(ctx context.Context, subscribed func(), hint func(pod.Hint), ended func(error)) {
	b.mu.Lock()
	b.breaks--
	breaks := b.breaks >= 0
	b.mu.Unlock()
	if breaks {
		ended(errors.New("connection refused"))
		return
	}
	b.world.Watch(ctx, subscribed, hint, ended)
}

// Each subscription to events is counted as succeeded or failed, and each inspection is counted with its duration. The end of the
// agent is no failure.
func TestSubscriptionsAndInspectionsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{events: make(chan pod.Hint), pods: map[types.UID]pod.Observed{}, hang: map[types.UID]bool{}, delay: 20 * time.Millisecond}
		w.set("a", true, pod.StateRunning)
		var mu sync.Mutex
		var subscribed []bool
		var inspected []time.Duration
		g := New(Config{
			Runtime: &breaking{world: w, breaks: 2}, Notify: func(types.UID) {}, Log: slog.New(slog.DiscardHandler),
			OnSubscribe: func(ok bool) {
				mu.Lock()
				defer mu.Unlock()
				subscribed = append(subscribed, ok)
			},
			OnInspect: func(took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				inspected = append(inspected, took)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := []bool{false, false, true}; !slices.Equal(subscribed, want) {
			t.Errorf("subscriptions %v, want %v", subscribed, want)
		}
		if len(inspected) == 0 || slices.ContainsFunc(inspected, func(d time.Duration) bool { return d != 20*time.Millisecond }) {
			t.Errorf("inspections took %v, want 20ms each", inspected)
		}
	})
}
