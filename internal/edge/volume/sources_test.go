package volume_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/volume"
)

// issuer is an Objects that takes a second for each token. It records how many requests it had at once.
type issuer struct {
	volume.Objects

	mu               sync.Mutex
	asked, now, most int
}

func (i *issuer) ServiceAccountToken(_ context.Context, _ *v1.Pod, audience string, _ *int64) (string, time.Time, error) {
	i.count(1)
	time.Sleep(time.Second)
	i.count(-1)
	return audience, time.Time{}, nil
}

func (i *issuer) count(d int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now += d
	i.most = max(i.most, i.now)
	if d > 0 {
		i.asked++
	}
}

// A volume with many sources reads a few of them at a time, so that the requests of one pod do not take all turns at the limit of the node's
// requests. All sources are read, also if they are fewer than those that may be read at once.
func TestSourcesAreReadAFewAtATime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sources, atOnce int
		took            time.Duration
	}{{0, 0, 0}, {1, 1, time.Second}, {3, 3, time.Second}, {4, 4, time.Second}, {100, 4, 25 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			src := &v1.ProjectedVolumeSource{}
			for i := range tt.sources {
				name := fmt.Sprint(i)
				src.Sources = append(src.Sources, v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: name, Path: name}})
			}
			tokens := &issuer{}
			m := volume.NewInMemory(volume.Config{RootDir: "/root", Objects: tokens})
			began := time.Now()
			if err := m.SetUp(t.Context(), volume.Pod{Pod: aPod(vol("v", v1.VolumeSource{Projected: src}))}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); tokens.asked != tt.sources || tokens.most != tt.atOnce || took != tt.took {
				t.Errorf("%d sources: %d tokens, %d at once, in %s; want %d at once in %s", tt.sources, tokens.asked, tokens.most, took, tt.atOnce, tt.took)
			}
		})
	}
}
