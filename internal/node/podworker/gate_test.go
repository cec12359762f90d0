package podworker

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// through lets pods start through a Gate (the limit on pods that start at the same time) of 2 to 16 slots. Each pod keeps its slot for
// a second, and then calls end. through returns how long all pods together took.
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
				if !g.Enter(uid, false) {
					<-turn
				}
				if !g.Enter(uid, false) {
					t.Errorf("%s was woken without a slot", uid)
				}
				time.Sleep(time.Second)
				end(g, uid)
			})
		}
		wg.Wait()
		took = time.Since(began)
		if len(g.inside) != 0 || g.waiting() != 0 {
			t.Errorf("%d pods are inside, %d wait", len(g.inside), g.waiting())
		}
	})
	return took
}

// A gate adds slots as long as a start takes no longer when more pods start at once. Only pods that call Finish count. If pods call Leave
// instead, the number of slots stays at its minimum.
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

// A pod that starts does not wait behind a hundred pods that crash in a loop. The pods that crash are still restarted.
func TestAStartGoesBeforeRestarts(t *testing.T) {
	t.Parallel()
	var order []types.UID
	g := NewGate(1, 1, func(uid types.UID) { order = append(order, uid) })
	g.Enter("inside", true)
	for i := range 100 {
		g.Enter(types.UID(fmt.Sprint("loop", i)), true)
	}
	for i := range 10 {
		g.Enter(types.UID(fmt.Sprint("new", i)), false)
	}
	g.Enter("loop0", false) // loop0 stays in the queue of the restarts
	g.Leave("inside")
	for i := range 20 {
		g.Leave(order[i])
	}
	want := "[new0 new1 new2 new3 loop0 new4 new5 new6 new7 loop1 new8 new9 loop2 loop3"
	if got := fmt.Sprint(order[:14]); got != want+"]" {
		t.Errorf("%s, want %s]", got, want)
	}
}

// The function restarts returns true if the plan starts only containers that have run before, and false if it starts a new container or
// sandbox.
func TestARestartStartsOnlyContainersThatHaveRun(t *testing.T) {
	t.Parallel()
	obs := &pod.Observed{Containers: []pod.Container{{Name: "crashes", Attempt: 1}, {Name: "once"}}}
	start := func(name string) pod.Action { return pod.Action{Op: pod.OpStartContainer, Container: name} }
	for name, c := range map[string]struct {
		do   []pod.Action
		want bool
	}{
		"the second restart":        {[]pod.Action{start("crashes")}, true},
		"its pull":                  {[]pod.Action{{Op: pod.OpPullImage, Container: "crashes"}}, true},
		"a removal beside it":       {[]pod.Action{start("crashes"), {Op: pod.OpRemoveContainer, Container: "new"}}, true},
		"the first restart":         {[]pod.Action{start("once")}, true},
		"a new container beside it": {[]pod.Action{start("crashes"), start("new")}, false},
		"a new sandbox":             {[]pod.Action{{Op: pod.OpRunSandbox, Attempt: 3}}, false},
	} {
		if got := restarts(obs, &decide.Plan{Do: c.do}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Place returns at which place a pod waits in its queue.
func TestPlaceAtTheGate(t *testing.T) {
	t.Parallel()
	g := NewGate(1, 1, func(types.UID) {})
	for _, uid := range []types.UID{"a", "b", "c"} {
		g.Enter(uid, false)
	}
	g.Enter("again", true)
	for uid, want := range map[types.UID][2]int{"a": {0, 0}, "b": {1, 2}, "c": {2, 2}, "again": {1, 1}, "unknown": {0, 0}} {
		if place, length := g.Place(uid); place != want[0] || length != want[1] {
			t.Errorf("%s is number %d of %d, want %v", uid, place, length, want)
		}
	}
}
