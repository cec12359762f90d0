package podworker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func onePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "ns"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "main", Image: "i"}}},
	}
}

// runner is a node with a pod whose container runs and whose set-ups the test answers.
func runner(t *testing.T) (s *still, w *Worker) {
	t.Helper()
	s = &still{setUps: make(chan chan pod.Outcome, 10), pod: onePod()}
	w = onNode(t, s, runningCache{}, s.pod)
	w.Look("it is new")
	(<-s.setUps) <- pod.Outcome{}
	synctest.Wait()
	return s, w
}

// An object that changes ten times a second does not keep the node busy: the volumes are set up again after waits that grow to a minute. The last
// change is shown, and after a pause a change is shown at once.
func TestAnObjectThatAlwaysChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := runner(t)
		answered := func() (n int) {
			for synctest.Wait(); len(s.setUps) > 0; synctest.Wait() {
				(<-s.setUps) <- pod.Outcome{}
				n++
			}
			return n
		}
		setUps := 0
		for range 6000 {
			w.Refresh("an object changed")
			setUps += answered()
			time.Sleep(100 * time.Millisecond)
		}
		if setUps < 12 || setUps > 24 {
			t.Errorf("the volumes were set up %d times in ten minutes, want 12 to 24", setUps)
		}
		time.Sleep(longestRefreshWait)
		if n := answered(); n != 1 {
			t.Errorf("after the last change, the volumes were set up %d times", n)
		}
		time.Sleep(3 * longestRefreshWait)
		w.Refresh("an object changed")
		if n := answered(); n != 1 {
			t.Errorf("after a pause, a change set the volumes up %d times at once", n)
		}
	})
}

// While other pods start, the volumes of a running pod are set up again without a slot of the gate, and that takes none.
func TestARefreshNeedsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := runner(t)
		if !w.cfg.Gate.Enter("another", false) {
			t.Fatal("the only slot is not free")
		}
		w.Refresh("an object changed")
		synctest.Wait()
		if len(s.setUps) != 1 {
			t.Fatalf("%d set-ups in flight", len(s.setUps))
		}
		w.cfg.Gate.Leave("another")
		if !w.cfg.Gate.Enter("another", false) {
			t.Error("the refresh has taken the only slot")
		}
		(<-s.setUps) <- pod.Outcome{}
		synctest.Wait()
	})
}

// counting is a node that counts the turns of its worker.
type counting struct {
	*still
	turns atomic.Int64
}

func (c *counting) Turn(*Turn) { c.turns.Add(1) }

// While a set-up of the volumes hangs and their objects have changed once more, the worker waits for its end, and takes no turn after another.
func TestAChangeWaitsForASetUpThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counting{still: &still{setUps: make(chan chan pod.Outcome, 10), pod: onePod()}}
		w := onNode(t, c, runningCache{}, c.pod)
		w.Look("it is new")
		for range 2 * freeRefreshes {
			(<-c.setUps) <- pod.Outcome{}
			synctest.Wait()
			w.Refresh("an object changed")
			time.Sleep(time.Second)
			synctest.Wait()
		}
		time.Sleep(longestRefreshWait)
		if len(c.setUps) != 1 {
			t.Fatalf("%d set-ups in flight", len(c.setUps))
		}
		w.Refresh("an object changed")
		synctest.Wait()
		before := c.turns.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := c.turns.Load() - before; n > 2 {
			t.Errorf("the worker took %d turns in a minute", n)
		}
		(<-c.setUps) <- pod.Outcome{}
		time.Sleep(longestRefreshWait)
		synctest.Wait()
		if len(c.setUps) != 1 {
			t.Error("what changed while the set-up hung was lost")
		}
		(<-c.setUps) <- pod.Outcome{}
		synctest.Wait()
	})
}
