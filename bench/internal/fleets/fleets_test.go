package fleets

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestSumOf(t *testing.T) {
	t.Parallel()
	text := "# HELP a_total x\na_total{verb=\"GET\",code=\"200\"} 3\na_total{verb=\"a b\"} 4\na_total_created 100\na_total 5\nb_total 7\n"
	if got := sumOf(text, "a_total"); got != 12 {
		t.Errorf("got %v, want 12", got)
	}
}

// A lease counts as late by the time since its last renewal, less the usual interval. A node that stops being Ready is counted.
func TestClusterCounts(t *testing.T) {
	t.Parallel()
	c := &Cluster{nodes: map[string]bool{}, pods: map[string]bool{}, renewed: map[string]time.Time{}}
	now := time.Unix(1000, 0)
	lease := func(at time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}}}
	}
	c.take(watch.Added, lease(now), now)
	c.take(watch.Modified, lease(now.Add(10*time.Second)), now.Add(10*time.Second))
	c.take(watch.Modified, lease(now.Add(10*time.Second)), now.Add(15*time.Second)) // not renewed
	c.take(watch.Modified, lease(now.Add(23*time.Second)), now.Add(23*time.Second))
	node := func(ready v1.ConditionStatus) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}}}
	}
	for _, ready := range []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionTrue, v1.ConditionTrue, v1.ConditionUnknown} {
		c.take(watch.Modified, node(ready), now)
	}
	late, lost := c.TakeLate()
	if len(late) != 2 || late[0] != 0 || late[1] != 3*time.Second || lost != 1 {
		t.Errorf("late %v, lost %d", late, lost)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Nodes(ctx, 1); err == nil || !strings.Contains(err.Error(), "0 of 1 nodes Ready") {
		t.Errorf("a node that is not Ready: %v", err)
	}
	c.take(watch.Modified, node(v1.ConditionTrue), now.Add(time.Minute))
	if at, err := c.Nodes(t.Context(), 1); err != nil || !at.Equal(now.Add(time.Minute)) {
		t.Errorf("Ready at %v: %v", at, err)
	}
	if err := c.Has(1, func(int) string { return "a" }); err != nil {
		t.Error(err)
	}
	if err := c.Has(1, func(int) string { return "b" }); err == nil || !strings.Contains(err.Error(), "no node b") {
		t.Errorf("a node that is missing: %v", err)
	}
	c.end()
	if _, err := c.Nodes(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "a watch has ended") {
		t.Errorf("after the end of a watch: %v", err)
	}
}

func TestEach(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	if err := each(t.Context(), 100, func(int) error { calls.Add(1); return nil }); err != nil || calls.Load() != 100 {
		t.Errorf("%d calls: %v", calls.Load(), err)
	}
	refused := errors.New("refused")
	if err := each(t.Context(), 100, func(i int) error {
		if i == 3 {
			return refused
		}
		return nil
	}); !errors.Is(err, refused) {
		t.Errorf("one call fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := each(ctx, 100, func(int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	text := Markdown([]Result{{Arm: "a", Nodes: 10, Pods: 20, NodesReady: 2, Memory: 10 << 20}, {Arm: "b", Nodes: 10, Pods: 20, NodesReady: 4}, {Arm: "a", Nodes: 50, Pods: 20}})
	for _, want := range []string{"| 10 nodes, 20 pods | a | b |", "| 50 nodes, 20 pods | a |", "| nodes Ready, s | 2.00 | 4.00 |", "| nodes a second | 5.00 | 2.50 |", "|   per node, KiB | 1024 |  |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
