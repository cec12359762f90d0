package fleet_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// play runs a scenario on ten nodes with twenty pods. It returns the faults that happened, a text with the phase and the restarts of
// each pod at the end, and the history of the nodes and pods.
func play(t *testing.T, s *fleet.Scenario) (happened []fleet.Happening, restarts string, history *fleet.History) {
	var mu sync.Mutex
	var text bytes.Buffer
	r := fleet.NewRecorder(&text)
	record := func(c fleet.Change) {
		mu.Lock()
		defer mu.Unlock()
		r.Changed(c)
	}
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 10}}, Changed: record})
		b.until(t, "all join", settled)
		go func() {
			time.Sleep(20 * time.Second)
			for i := range 20 {
				b.createPod(t, fmt.Sprintf("p%02d", i), fmt.Sprintf("f-node-%d", i/2+1))
			}
		}()
		if err := b.fleet.Play(t.Context(), s, func(h fleet.Happening) { happened = append(happened, h) }); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Minute)
		pods, err := b.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			c := p.Status.ContainerStatuses[0]
			restarts += fmt.Sprintf("%s %s %d;", p.Name, p.Status.Phase, c.RestartCount)
			if last := c.LastTerminationState.Terminated; last != nil && p.Name == "p03" {
				restarts += fmt.Sprintf(" %s %d;", last.Reason, last.ExitCode)
			}
		}
		b.end(t)
	})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	history, err := fleet.ReadHistory("history", &text)
	if err != nil {
		t.Fatal(err)
	}
	return happened, restarts, history
}

// Two runs of a scenario with the same seed give the same result; with another seed the result differs. The faults happen as often as the
// events say, and not before their conditions are true and their waits are over.
func TestPlay(t *testing.T) {
	t.Parallel()
	s := &fleet.Scenario{Seed: 5, Events: []fleet.Event{
		{
			Name: "exits", When: fleet.Condition{PodsRunning: 20}, After: 10 * time.Second, Every: time.Minute, Jitter: 5 * time.Second, Times: 4, Nodes: fleet.Selector{All: true},
			Fault: fleet.Fault{Kind: fleet.FaultExit, Exit: fleet.Exit{Pod: "p0*", Percent: 50, Code: 3}},
		},
		{
			Name: "crashes", After: 2 * time.Minute, Every: 30 * time.Second, Times: 3, Nodes: fleet.Selector{Count: 2},
			Fault: fleet.Fault{Kind: fleet.FaultCrash, For: 20 * time.Second},
		},
	}}
	first, end, history := play(t, s)
	again, endAgain, historyAgain := play(t, s)
	if d := fleet.Compare(history, historyAgain, true); len(d) != 0 {
		t.Errorf("the histories of two runs with the same seed differ: %+v", d)
	}
	if nodes, pods := history.Timings(); nodes.Count != 10 || pods.Count != 20 {
		t.Errorf("the history has %d nodes and %d pods that became ready", nodes.Count, pods.Count)
	}
	if diff := cmp.Diff(first, again); diff != "" || end != endAgain {
		t.Errorf("the same seed: %s\n%s", diff, cmp.Diff(end, endAgain))
	}
	if len(first) != 7 {
		t.Fatalf("%d things happened: %+v", len(first), first)
	}
	if h := first[0]; h.Event != "exits" || h.At < 25*time.Second || h.At > 40*time.Second || len(h.On) != 5 || h.Err != "" {
		t.Errorf("first: %+v", h)
	}
	other := *s
	other.Seed = 6
	different, _, otherHistory := play(t, &other)
	if cmp.Equal(first, different) {
		t.Error("another seed makes the same things happen")
	}
	if d := fleet.Compare(history, otherHistory, true); len(d) == 0 {
		t.Error("the histories of runs with different seeds do not differ")
	}
}

// Play refuses a scenario that names a group that the fleet does not have, and injects nothing.
func TestPlayUnknownGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
		b.until(t, "it joins", settled)
		err := b.fleet.Play(t.Context(), &fleet.Scenario{Events: []fleet.Event{{Times: 1, Nodes: fleet.Selector{All: true, Group: "big"}, Fault: fleet.Fault{Kind: fleet.FaultCrash}}}},
			func(h fleet.Happening) { t.Errorf("it happened: %+v", h) })
		if !errors.Is(err, fleet.ErrNoGroup) {
			t.Error(err)
		}
		b.end(t)
	})
}

// A scenario can play from the start of the fleet: an event without a condition waits until all nodes have joined, and its waits count from
// then. Later such an event does not wait for nodes that have crashed.
func TestPlayFromTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 30}}})
		began := time.Now()
		held := fleet.Fault{Kind: fleet.FaultLease, For: time.Minute}
		var happened []fleet.Happening
		err := b.fleet.Play(t.Context(), &fleet.Scenario{Events: []fleet.Event{
			{Name: "at once", Times: 1, Nodes: fleet.Selector{All: true}, Fault: held},
			{Name: "later", After: 10 * time.Second, Times: 1, Nodes: only("f-node-30"), Fault: held},
			{Name: "some are ready", When: fleet.Condition{NodesReady: 5}, Times: 1, Nodes: fleet.Selector{Count: 1}, Fault: held},
		}}, func(h fleet.Happening) { happened = append(happened, h) })
		if err != nil {
			t.Error(err)
		}
		on := map[string]int{}
		for _, h := range happened {
			on[h.Event] = len(h.On)
			if h.Err != "" || h.LeftOut != 0 {
				t.Errorf("%+v", h)
			}
		}
		if diff := cmp.Diff(map[string]int{"at once": 30, "later": 1, "some are ready": 1}, on); diff != "" || time.Since(began) < 10*time.Second {
			t.Errorf("after %s: %s", time.Since(began), diff)
		}
		if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultCrash}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		again := fleet.Fault{Kind: fleet.FaultRuntime, Runtime: simulated.Fault{Method: "PullImage", Hang: true}}
		err = b.fleet.Play(t.Context(), &fleet.Scenario{Events: []fleet.Event{{Name: "again", Times: 1, Nodes: fleet.Selector{All: true}, Fault: again}}}, func(h fleet.Happening) {
			if len(h.On) != 29 || h.LeftOut != 1 || h.Why != "node f-node-1 has crashed: its runtime does not run" || h.Err != "" {
				t.Errorf("%+v", h)
			}
		})
		if err != nil || time.Since(began) > time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		b.end(t)
	})
}

// A scenario for a fleet without nodes waits until there are some.
func TestPlayWaitsForTheFirstNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 0}}})
		go func() {
			time.Sleep(time.Minute)
			if err := b.fleet.Scale("", 2); err != nil {
				t.Error(err)
			}
		}()
		err := b.fleet.Play(t.Context(), &fleet.Scenario{Events: []fleet.Event{{Times: 1, Nodes: fleet.Selector{All: true}, Fault: fleet.Fault{Kind: fleet.FaultLease}}}}, func(h fleet.Happening) {
			if h.At < time.Minute || len(h.On) != 2 {
				t.Errorf("%+v", h)
			}
		})
		if err != nil {
			t.Error(err)
		}
		b.end(t)
	})
}

// Under memory or disk pressure the node's agent evicts the pod and sets the node's pressure condition. After the pressure the condition is
// false.
func TestPressure(t *testing.T) {
	t.Parallel()
	for resource, c := range map[string]struct {
		pressure  simulated.Pressure
		condition v1.NodeConditionType
	}{
		"memory": {simulated.Pressure{Memory: 99.9}, v1.NodeMemoryPressure},
		"disk":   {simulated.Pressure{Disk: 97}, v1.NodeDiskPressure},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
			b.until(t, "it joins", settled)
			b.createPod(t, "p", "f-node-1")
			b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
			if _, err := b.fleet.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultPressure, Pressure: c.pressure, For: 2 * time.Minute}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(90 * time.Second)
			p, err := b.admin.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil || p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" {
				t.Errorf("%s: pod %s %s, %v", resource, p.Status.Phase, p.Status.Reason, err)
			}
			if got := b.condition(t, c.condition); got != v1.ConditionTrue {
				t.Errorf("%s: %s is %s", resource, c.condition, got)
			}
			time.Sleep(10 * time.Minute)
			if got := b.condition(t, c.condition); got != v1.ConditionFalse {
				t.Errorf("%s: after the pressure %s is %s", resource, c.condition, got)
			}
			b.end(t)
		})
	}
}

// condition returns the status of one condition of the first node.
func (b *bench) condition(t *testing.T, kind v1.NodeConditionType) v1.ConditionStatus {
	t.Helper()
	for _, c := range b.nodes(t)[0].Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// While a node has FaultLease, its lease is not renewed, but its pods run. After the fault the node renews the lease again.
func TestLeaseLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 2}}})
		b.until(t, "all join", settled)
		time.Sleep(5 * time.Second)
		if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultLease, For: time.Minute}); err != nil {
			t.Fatal(err)
		}
		b.createPod(t, "p", "f-node-1")
		time.Sleep(55 * time.Second)
		if age := b.leaseAge(t, "f-node-1"); age < 50*time.Second {
			t.Errorf("the lease is %s old", age)
		}
		if age := b.leaseAge(t, "f-node-2"); age > 11*time.Second {
			t.Errorf("the lease of the other node is %s old", age)
		}
		if s := b.fleet.Status(); s.Pods.Running != 1 {
			t.Errorf("%+v", s.Pods)
		}
		time.Sleep(20 * time.Second)
		if age := b.leaseAge(t, "f-node-1"); age > 11*time.Second {
			t.Errorf("after the fault the lease is %s old", age)
		}
		b.end(t)
	})
}

// While the node has FaultSlowAPI, a pod's status reaches the API server later.
func TestSlowAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
		b.until(t, "it joins", settled)
		if _, err := b.fleet.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultSlowAPI, Delay: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		b.createPod(t, "p", "f-node-1")
		time.Sleep(4 * time.Second)
		if s := b.fleet.Status(); s.Pods.Running != 0 {
			t.Error("the status arrived at once")
		}
		b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
		if _, err := b.fleet.Heal(fleet.Selector{All: true}); err != nil {
			t.Fatal(err)
		}
		b.createPod(t, "q", "f-node-1")
		time.Sleep(4 * time.Second)
		if s := b.fleet.Status(); s.Pods.Running != 2 {
			t.Errorf("after the fault: %+v", s.Pods)
		}
		b.end(t)
	})
}
