package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// walked are volumes whose walks have the results of a test. A walk takes 100 ms; the walk of a pod with the prefix "slow" does not end. Each
// walk finds a MiB.
type walked struct {
	volumes
	errs     map[types.UID]error
	filesErr error
}

func (w walked) UsageNow(ctx context.Context, p *v1.Pod) ([]volume.Usage, error) {
	var took <-chan time.Time
	if !strings.HasPrefix(p.Name, "slow") {
		took = time.After(100 * time.Millisecond)
	}
	err := w.errs[p.UID]
	select {
	case <-took:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return []volume.Usage{{Name: "v", UsedBytes: 1 << 20, InodesUsed: 3}, {Name: "m", Memory: true, UsedBytes: 1 << 30}}, err
}

func (w walked) FilesUsage(types.UID) (volume.FilesUsage, error) {
	return volume.FilesUsage{Hosts: 4096, Inodes: 1}, w.filesErr
}

// measure lets an agent measure the disk usage of the named pods within 30 s, as the evictor does.
func measure(t *testing.T, w walked, names ...string) map[types.UID]*evict.Usage {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := stats.New(stats.Config{NodeName: "n", Pods: observed{&Agent{}}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{stats: s, platform: &platform{volumes: w}, log: log}
	pods := make([]*v1.Pod, len(names))
	for i, name := range names {
		pods[i] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return a.podUsage(ctx, pods, evict.DiskUse)
}

// Some pods have so many files that the walks through their volumes do not end in time. All other pods are measured, and the results of the
// slow pods say that they are not complete.
func TestSlowWalksTakeNoTimeFromOtherPods(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slow, quick int
		atMost      time.Duration // how long the measurement may take
	}{{0, 100, 5 * time.Second}, {1, 2, 30 * time.Second}, {1, 50, 10 * time.Second}, {12, 98, 25 * time.Second}} {
		t.Run(fmt.Sprintf("%d of %d", c.slow, c.slow+c.quick), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range c.slow {
					names = append(names, fmt.Sprintf("slow-%d", i))
				}
				for i := range c.quick {
					names = append(names, fmt.Sprintf("quick-%d", i))
				}
				began := time.Now()
				got := measure(t, walked{}, names...)
				if took := time.Since(began); took > c.atMost {
					t.Errorf("took %v", took)
				}
				for _, name := range names {
					u := got[types.UID(name)]
					if u == nil {
						t.Errorf("%s is absent", name)
					} else if slow := strings.HasPrefix(name, "slow"); u.NoVolumes != slow || u.Evades || u.Volumes != (evict.Disk{Bytes: 1<<20 + 4096, Inodes: 4}) {
						t.Errorf("%s: %+v", name, u)
					}
				}
			})
		})
	}
}

// What could not be measured completely is marked. A pod that has made its directories so that no walk can follow them evades the measurement;
// a pod on a disk that cannot be read does not.
func TestWhatCouldNotBeMeasuredIsMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := walked{errs: map[types.UID]error{
			"deep": fmt.Errorf("volume %q: %w", "v", hostfs.ErrTooDeep), "moved": errors.Join(hostfs.ErrMoved, errors.New("other")), "unreadable": errors.New("input/output error"),
		}}
		got := measure(t, w, "deep", "moved", "unreadable", "good")
		for uid, want := range map[types.UID][2]bool{"deep": {true, true}, "moved": {true, true}, "unreadable": {true, false}, "good": {false, false}} {
			if u := got[uid]; u == nil || u.NoVolumes != want[0] || u.Evades != want[1] {
				t.Errorf("%s: %+v, want NoVolumes %t, Evades %t", uid, u, want[0], want[1])
			}
		}
		if u := measure(t, walked{filesErr: errors.New("gone")}, "good")["good"]; u == nil || !u.NoVolumes || u.Evades {
			t.Errorf("the agent's files cannot be measured: %+v", u)
		}
	})
}
