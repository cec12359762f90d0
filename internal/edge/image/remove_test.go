package image

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// slowRemoval takes a minute to remove an image, or until its context ends.
type slowRemoval struct {
	*store
	calls int
}

func (s *slowRemoval) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	select {
	case <-time.After(time.Minute):
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.present)
		return &runtimeapi.RemoveImageResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The caller of Remove gives up before the runtime has answered. A pod that needs the image in that time waits for the answer, so
// that its image is not removed while the pod starts. Another removal does not begin.
func TestEnsureWaitsForAnAbandonedRemoval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowRemoval{store: &store{present: map[string]string{"app:1": "sha256:app:1", "sha256:app:1": "sha256:app:1"}}}
		m := New(Config{Client: s})
		img := &runtimeapi.Image{Id: "sha256:app:1", RepoTags: []string{"app:1"}}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if removed, err := m.Remove(ctx, img); removed || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("removed: %t, %v, after %s", removed, err, time.Since(began))
		}
		if removed, err := m.Remove(t.Context(), img); removed || err == nil {
			t.Errorf("once more: removed: %t, %v", removed, err)
		}
		res, err := m.Ensure(t.Context(), Request{Image: "app:1", Policy: v1.PullIfNotPresent})
		if err != nil || !res.Pulled || time.Since(began) != time.Minute+time.Second {
			t.Errorf("pulled: %t, %v, after %s", res.Pulled, err, time.Since(began))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls != 1 {
			t.Errorf("the runtime was asked %d times to remove the image", s.calls)
		}
	})
}
