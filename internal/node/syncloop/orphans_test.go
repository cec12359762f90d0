package syncloop

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
)

// orphanMeter has the numbers of the last search for orphans, and the most that a search found.
type orphanMeter struct {
	noMeter
	mu                sync.Mutex
	all, remain, most int
}

func (m *orphanMeter) Orphans(all, remain int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.remain, m.most = all, remain, max(m.most, all)
}

func (m *orphanMeter) want(t *testing.T, when string, all, remain int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all != all || m.remain != remain {
		t.Errorf("%s: %d orphans, %d of them found before; want %d and %d", when, m.all, m.remain, all, remain)
	}
}

// Two pods are gone but left something on the node. The agent removes it as soon as every source has answered. The removal fails for one
// of them at first; the agent retries and counts the pod as an orphan meanwhile. It logs each orphan once.
func TestOrphans(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log strings.Builder
	there, stuck := map[types.UID]bool{"easy": true, "hard": true}, true
	m := &orphanMeter{}
	b := &bare{node: true, meter: m, log: slog.New(slog.NewTextHandler(&log, nil))}
	b.left = func(known func(types.UID) bool) (left []types.UID, _ error) {
		mu.Lock()
		defer mu.Unlock()
		for uid := range there {
			if !known(uid) {
				left = append(left, uid)
			}
		}
		return left, nil
	}
	b.fails = func(job pod.Job) error {
		mu.Lock()
		defer mu.Unlock()
		if job.Ref.UID == "hard" && stuck {
			return errors.New("busy")
		}
		delete(there, job.Ref.UID)
		return nil
	}
	run(t, b, func(set *podset.Set) {
		time.Sleep(3 * time.Minute)
		if len(there) != 2 {
			t.Error("something was removed before every source has answered")
		}
		set.Replace(pod.SourceAPI, []*v1.Pod{})
		time.Sleep(5 * time.Second)
		if mu.Lock(); there["easy"] || !there["hard"] {
			t.Errorf("left after five seconds: %v", there)
		}
		mu.Unlock()
		time.Sleep(3 * time.Minute)
		if m.mu.Lock(); m.most != 2 {
			t.Errorf("at most %d orphans were found", m.most)
		}
		m.mu.Unlock()
		m.want(t, "while one cannot be removed", 1, 1)
		mu.Lock()
		stuck = false
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		m.want(t, "in the end", 0, 0)
	})
	if len(there) > 0 {
		t.Errorf("left: %v", there)
	}
	for _, uid := range []string{"easy", "hard"} {
		if n := strings.Count(log.String(), "has left something on the node: it is removed\" podUID="+uid); n != 1 {
			t.Errorf("%s is logged %d times", uid, n)
		}
	}
}
