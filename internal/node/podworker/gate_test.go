package podworker

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// through sends pods through a gate of 2 to 16 places. Each pod keeps its place for a second. It returns how long all pods
// together took.
func through(t *testing.T, pods int, end func(*Gate, types.UID)) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		turns := map[types.UID]chan struct{}{}
		for i := range pods {
			turns[types.UID(fmt.Sprint(i))] = make(chan struct{})
		}
		g := NewGate(2, 16, func(uid types.UID) { close(turns[uid]) })
		began := time.Now()
		var wg sync.WaitGroup
		for uid, turn := range turns {
			wg.Go(func() {
				if !g.Enter(uid) {
					<-turn
				}
				if !g.Enter(uid) {
					t.Errorf("%s was woken without a place", uid)
				}
				time.Sleep(time.Second)
				end(g, uid)
			})
		}
		wg.Wait()
		took = time.Since(began)
		if len(g.inside) != 0 || len(g.waiting) != 0 {
			t.Errorf("%d pods are inside, %d wait", len(g.inside), len(g.waiting))
		}
	})
	return took
}

// A gate lets more pods in at once if starts do not become slower by that. It learns only from pods that have been started, not
// from those that leave for another reason.
func TestGateLearnsFromStarts(t *testing.T) {
	t.Parallel()
	const pods = 60
	if took := through(t, pods, (*Gate).Finish); took > 15*time.Second {
		t.Errorf("%d pods that are no slower beside others took %v", pods, took)
	}
	if took := through(t, pods, (*Gate).Leave); took != pods/2*time.Second {
		t.Errorf("%d pods that start nothing took %v: the gate has learned from them", pods, took)
	}
}
