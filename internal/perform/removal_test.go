package perform

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// What is left of a pod is removed when nothing is started or stopped any more, or after a while all the same.
func TestRemovalsComeLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job  pod.Job
		busy time.Duration // how long something is stopped
		want time.Duration
	}{
		"nothing else is done":                       {want: 0},
		"others are stopped":                         {busy: 3 * time.Second, want: 3 * time.Second},
		"others are stopped for long":                {busy: time.Hour, want: removalPatience},
		"it is in the way of a pod that is to go on": {job: pod.Job{Pod: new(v1.Pod)}, busy: time.Hour, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := &Performer{removals: newRemovals()}
				if c.busy > 0 {
					leave, second := x.removals.enter(), x.removals.enter()
					second()
					time.AfterFunc(c.busy, leave)
				}
				began := time.Now()
				x.remove(context.Background(), c.job, func(context.Context, pod.Job) pod.Outcome { return pod.Outcome{} })
				if took := time.Since(began); took != c.want {
					t.Errorf("the removal was made after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// Under constant load only so many wait for a calm moment. One more is made at once.
func TestWaitingRemovalsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := &Performer{removals: newRemovals()}
		leave := x.removals.enter()
		const more = 10
		var done atomic.Int32
		for range removalsWaiting + more {
			go x.remove(context.Background(), pod.Job{}, func(context.Context, pod.Job) pod.Outcome {
				done.Add(1)
				return pod.Outcome{}
			})
		}
		synctest.Wait()
		if n := done.Load(); n != more {
			t.Errorf("%d removals while something is stopped, want %d", n, more)
		}
		leave()
		synctest.Wait()
		if n := done.Load(); n != removalsWaiting+more {
			t.Errorf("%d removals after that, want %d", n, removalsWaiting+more)
		}
	})
}
