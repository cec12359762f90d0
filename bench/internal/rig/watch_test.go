package rig

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Many goroutines wait for different conditions of the same watch. Each one sees its own condition at once.
func TestManyMayAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Watch{pods: map[string]*podSeen{}, nodes: map[string][]nodeSeen{}, moved: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if _, err := w.Ready(ctx, []string{fmt.Sprint("pod-", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for i := range 3 {
			w.take(watch.Event{Type: watch.Modified, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i)},
				Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}}}, time.Now())
		}
		wg.Wait()
	})
}
