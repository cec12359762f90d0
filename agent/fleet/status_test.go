package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// The status counts joins with what they waited for, pods by group, pods that go, and nodes that leave.
func TestStatusCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Name: "a", Count: 4}, {Name: "b", Count: 1}}})
		b.until(t, "all join", settled)
		s := b.fleet.Status()
		// A request takes 5 ms, and a join needs at least one.
		if j := s.Joins; j.Ended != 5 || j.Waited < 5*5*time.Millisecond || j.Waited > j.Took {
			t.Errorf("joins: %+v", j)
		}
		if n := s.Nodes; n.Up != 5 || n.NotReady() != 0 || s.Began.IsZero() || time.Since(s.Began) != s.Running {
			t.Errorf("%+v", s)
		}
		b.createPod(t, "p", "f-a-1")
		b.createPod(t, "q", "f-a-2")
		b.createPod(t, "r", "f-b-1")
		b.until(t, "they run", func(s fleet.Status) bool { return s.Pods.Running == 3 })
		if s := b.fleet.Status(); s.Groups[0].Pods != 2 || s.Groups[1].Pods != 1 || s.Pods.Deletions != 0 {
			t.Errorf("%+v", s)
		}
		if err := b.admin.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.until(t, "one has gone", func(s fleet.Status) bool { return s.Pods.Deletions == 1 && s.Pods.Running == 2 })
		if err := b.fleet.Scale("b", 0); err != nil {
			t.Fatal(err)
		}
		b.until(t, "a node has left", func(s fleet.Status) bool { return s.Settled() && s.Joins.Left == 1 && s.Pods.Deletions == 2 })
		b.end(t)
	})
}

// While requests are slow, a join waits longer for the API server.
func TestJoinsWaitForTheAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
		b.until(t, "it joins", settled)
		first := b.fleet.Status().Joins
		b.kube.Inject(simkube.Fault{Effect: simkube.Slow, Delay: 200 * time.Millisecond})
		if err := b.fleet.Scale("", 2); err != nil {
			t.Fatal(err)
		}
		b.until(t, "the second joins", settled)
		second := b.fleet.Status().Joins
		second.Waited -= first.Waited
		second.Took -= first.Took
		if second.Waited < 10*first.Waited || second.Waited > second.Took {
			t.Errorf("first %+v, then %+v", first, second)
		}
		b.end(t)
	})
}

// Attention returns the nodes that need it, the worst first, with their faults. Status lists the active faults, the newest first.
func TestAttention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 12}}})
		b.until(t, "all join", settled)
		b.createPod(t, "p", "f-node-2")
		b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
		time.Sleep(20 * time.Second)
		if nodes, all := b.fleet.Attention(10); len(nodes) != 0 || all != 0 {
			t.Errorf("without a fault: %+v, %d", nodes, all)
		}
		began := time.Now()
		for _, f := range []struct {
			node  string
			fault fleet.Fault
		}{
			{"f-node-11", fleet.Fault{Kind: fleet.FaultPressure, Pressure: simulated.Pressure{Memory: 5, Disk: 7.5}}},
			{"f-node-2", fleet.Fault{Kind: fleet.FaultLease, For: time.Minute}},
			{"f-node-2", fleet.Fault{Kind: fleet.FaultSlowAPI, Delay: time.Second}},
			{"f-node-10", fleet.Fault{Kind: fleet.FaultPartition}},
			{"f-node-9", fleet.Fault{Kind: fleet.FaultPartition}},
			{"f-node-3", fleet.Fault{Kind: fleet.FaultCrash}},
		} {
			if _, err := b.fleet.Inject(only(f.node), f.fault); err != nil {
				t.Fatal(err)
			}
		}
		nodes, all := b.fleet.Attention(5)
		for i := range nodes {
			nodes[i].Overdue = 0 // a renewal may be on its way
		}
		want := []fleet.NodeStatus{
			{Name: "f-node-3", Group: "node", State: "crashed", Faults: []fleet.FaultKind{fleet.FaultCrash}},
			{Name: "f-node-9", Group: "node", State: "partitioned", Faults: []fleet.FaultKind{fleet.FaultPartition}},
			{Name: "f-node-10", Group: "node", State: "partitioned", Faults: []fleet.FaultKind{fleet.FaultPartition}},
			{Name: "f-node-2", Group: "node", State: "ready", Pods: 1, Ready: 1, Faults: []fleet.FaultKind{fleet.FaultLease, fleet.FaultSlowAPI}},
			{Name: "f-node-11", Group: "node", State: "ready", Faults: []fleet.FaultKind{fleet.FaultPressure}},
		}
		if diff := cmp.Diff(want, nodes); diff != "" || all != 5 {
			t.Errorf("%d nodes: %s", all, diff)
		}
		if nodes, all := b.fleet.Attention(1); len(nodes) != 1 || all != 5 {
			t.Errorf("%d of %d nodes", len(nodes), all)
		}
		if nodes, _ := b.fleet.Attention(-1); len(nodes) != 0 {
			t.Errorf("%+v", nodes)
		}
		faults := b.fleet.Status().Faults
		wantFaults := []fleet.FaultStatus{
			{Kind: fleet.FaultCrash, Nodes: 1, Since: began},
			{Kind: fleet.FaultPartition, Nodes: 1, Since: began},
			{Kind: fleet.FaultPartition, Nodes: 1, Since: began},
			{Kind: fleet.FaultSlowAPI, Text: "requests take 1s longer", Nodes: 1, Since: began},
			{Kind: fleet.FaultLease, Nodes: 1, Since: began, Until: began.Add(time.Minute)},
			{Kind: fleet.FaultPressure, Text: "memory 5 %, disk 7.5 %", Nodes: 1, Since: began},
		}
		if diff := cmp.Diff(wantFaults, faults); diff != "" {
			t.Error(diff)
		}
		time.Sleep(50 * time.Second)
		nodes, _ = b.fleet.Attention(1)
		if n := b.fleet.Status().Nodes; n.Up != 9 || n.Crashed != 1 || n.Partitioned != 2 || nodes[0].Name != "f-node-3" {
			t.Errorf("%+v, %+v", n, nodes)
		}
		b.end(t)
	})
}

// A node whose lease the API server does not take needs attention. A node whose lease a fault holds back is not overdue.
func TestOverdueNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 2}}})
		b.until(t, "all join", settled)
		time.Sleep(20 * time.Second)
		if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultSlowAPI, Delay: 15 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.fleet.Inject(only("f-node-2"), fleet.Fault{Kind: fleet.FaultLease}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		nodes, _ := b.fleet.Attention(2)
		if len(nodes) != 2 || nodes[0].Name != "f-node-1" || nodes[0].Overdue < 15*time.Second || nodes[1].Overdue > time.Second {
			t.Errorf("%+v", nodes)
		}
		b.end(t)
	})
}

// The status has the progress of scenarios: how many faults have happened, and which one is next, and when.
func TestScenarioStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 2}}})
		b.until(t, "all join", settled)
		if s := b.fleet.Status().Scenarios; s != nil {
			t.Errorf("%+v", s)
		}
		began := time.Now()
		all := fleet.Selector{All: true}
		s := &fleet.Scenario{Name: "s.yaml", Events: []fleet.Event{
			{Name: "crashes", After: time.Minute, Every: 10 * time.Minute, Times: 2, Nodes: all, Fault: fleet.Fault{Kind: fleet.FaultCrash, For: time.Second}},
			{Name: "unknown", After: 2 * time.Minute, Times: 1, Nodes: only("f-node-3"), Fault: fleet.Fault{Kind: fleet.FaultAgent}},
			{Name: "never", When: fleet.Condition{PodsRunning: 1}, Times: 1, Nodes: all, Fault: fleet.Fault{Kind: fleet.FaultAgent}},
		}}
		ended := make(chan error)
		go func() { ended <- b.fleet.Play(t.Context(), s, nil) }()
		for _, c := range []struct {
			after time.Duration
			want  fleet.ScenarioStatus
		}{
			{time.Second, fleet.ScenarioStatus{Next: "crashes", NextAt: began.Add(time.Minute)}},
			{90 * time.Second, fleet.ScenarioStatus{Happened: 1, Last: "crashes", Next: "unknown", NextAt: began.Add(2 * time.Minute)}},
			{3 * time.Minute, fleet.ScenarioStatus{Happened: 1, Failed: 1, Last: "unknown", Next: "crashes", NextAt: began.Add(11 * time.Minute)}},
			{12 * time.Minute, fleet.ScenarioStatus{Happened: 2, Failed: 1, Last: "crashes"}},
		} {
			time.Sleep(time.Until(began.Add(c.after)))
			synctest.Wait()
			c.want.Name, c.want.Began, c.want.Faults = "s.yaml", began, 4
			if diff := cmp.Diff([]fleet.ScenarioStatus{c.want}, b.fleet.Status().Scenarios); diff != "" {
				t.Errorf("after %s: %s", c.after, diff)
			}
		}
		b.createPod(t, "p", "f-node-1")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		got := b.fleet.Status().Scenarios
		if len(got) != 1 || !got[0].Ended || got[0].Happened != 3 || got[0].Next != "" {
			t.Errorf("at the end: %+v", got)
		}
		// The list is bounded: the ones that have ended go first.
		quick := &fleet.Scenario{Name: "quick", Events: []fleet.Event{{Name: "e", Times: 1, Nodes: all, Fault: fleet.Fault{Kind: fleet.FaultLease, For: time.Second}}}}
		for range 40 {
			if err := b.fleet.Play(t.Context(), quick, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.fleet.Status().Scenarios; len(got) != 16 || got[0].Name != "quick" || got[15].Name != "quick" {
			t.Errorf("%d scenarios: %+v", len(got), got)
		}
		b.end(t)
	})
}
