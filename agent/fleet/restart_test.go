package fleet_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// createJob creates a pod that ends at once, with success.
func (b *bench) createJob(t *testing.T, name, node string) {
	t.Helper()
	_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{simulated.AnnotationExitCode: "0"}},
		Spec:       v1.PodSpec{NodeName: node, RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// The next process of a fleet counts the pods of all its nodes, also those that have ended and so never change again, although most nodes join
// only after the first list of the pods. It reports them to Config.Changed, too.
func TestPodsOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes = 40
		cfg := fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: nodes}}}
		b := start(t, cfg)
		b.until(t, "all join", settled)
		for i := range nodes {
			b.createJob(t, fmt.Sprint("p", i), fmt.Sprint("f-node-", i+1))
		}
		ended := func(s fleet.Status) bool { return s.Pods.Succeeded == nodes }
		b.until(t, "all pods end", ended)
		b.end(t)
		time.Sleep(time.Minute)
		var mu sync.Mutex
		seen := map[string]bool{}
		cfg.Changed = func(c fleet.Change) {
			mu.Lock()
			defer mu.Unlock()
			if c.Pod != "" && c.State == string(v1.PodSucceeded) {
				seen[c.Pod] = true
			}
		}
		b.run(t, cfg)
		b.until(t, "all join again", settled)
		if s := b.fleet.Status(); !ended(s) || s.Groups[0].Pods != nodes {
			t.Errorf("%+v, %d in the group", s.Pods, s.Groups[0].Pods)
		}
		mu.Lock()
		if len(seen) != nodes {
			t.Errorf("%d pods were reported", len(seen))
		}
		mu.Unlock()
		if _, err := b.fleet.Await(t.Context(), 0, expectations(t, "pods=finished", "nodes=ready")...); err != nil {
			t.Error(err)
		}
		b.end(t)
	})
}

// expectations parses expectations.
func expectations(t *testing.T, texts ...string) []fleet.Expectation {
	t.Helper()
	parsed, err := fleet.ParseExpectations(texts)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// If the next process of a fleet has fewer nodes, it removes the others from the cluster, with their pods. It touches no Node of another fleet.
func TestNextProcessWithFewerNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "g-node-5", Labels: map[string]string{fleet.LabelFleet: "g"}}}
		b := start(t, fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 6}}})
		if _, err := b.admin.CoreV1().Nodes().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.until(t, "all join", settled)
		for i := range 6 {
			b.createPod(t, fmt.Sprint("p", i), fmt.Sprint("f-node-", i+1))
		}
		b.until(t, "all pods run", func(s fleet.Status) bool { return s.Pods.Running == 6 })
		b.end(t)
		time.Sleep(time.Minute)
		b.run(t, fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 4}}})
		b.until(t, "those that are left join", settled)
		time.Sleep(time.Minute)
		var names []string
		for _, n := range b.nodes(t) {
			names = append(names, n.Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{"f-node-1", "f-node-2", "f-node-3", "f-node-4", "g-node-5"}, names); diff != "" {
			t.Error(diff)
		}
		if s := b.fleet.Status(); !s.Settled() || s.Pods.Running != 4 {
			t.Errorf("%+v", s)
		}
		pods, err := b.admin.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 4 {
			t.Errorf("%d pods, %v", len(pods.Items), err)
		}
		// It still can grow: the names of removed Nodes are free.
		if err := b.fleet.Scale("", 6); err != nil {
			t.Fatal(err)
		}
		b.until(t, "it has grown", settled)
		b.end(t)
	})
}

// A Node that somebody deletes comes back: the agent starts again and registers it, and its containers run on. The Node of a machine that has
// crashed comes back with the machine, and a Node that the fleet itself removes stays away.
func TestDeletedNodeComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 3}}})
		b.until(t, "all join", settled)
		b.createPod(t, "p", "f-node-2")
		b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
		time.Sleep(20 * time.Second)
		uids := func() map[string]types.UID {
			out := map[string]types.UID{}
			for _, n := range b.nodes(t) {
				out[n.Name] = n.UID
			}
			return out
		}
		remove := func(node string) {
			t.Helper()
			if err := b.admin.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if s := b.fleet.Status(); s.Settled() {
				t.Errorf("the fleet says that it is complete although %s was deleted", node)
			}
		}
		before, container := uids(), b.container(t, "p").ContainerID
		remove("f-node-2")
		b.until(t, "it is back", settled)
		if after := uids(); len(after) != 3 || after["f-node-2"] == before["f-node-2"] || after["f-node-1"] != before["f-node-1"] {
			t.Errorf("Nodes %v, before %v", after, before)
		}
		time.Sleep(20 * time.Second)
		if c := b.container(t, "p"); c.ContainerID != container || c.State.Running == nil || c.RestartCount != 0 {
			t.Errorf("the container: %+v, was %s", c, container)
		}
		if age := b.leaseAge(t, "f-node-2"); age > 11*time.Second {
			t.Errorf("its lease is %s old", age)
		}
		if _, err := b.fleet.Inject(only("f-node-3"), fleet.Fault{Kind: fleet.FaultCrash, For: 2 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		remove("f-node-3")
		time.Sleep(time.Minute)
		if after := uids(); len(after) != 2 {
			t.Errorf("while the machine is off: %v", after)
		}
		time.Sleep(time.Minute)
		b.until(t, "it is back after the crash", settled)
		if err := b.fleet.Scale("", 1); err != nil {
			t.Fatal(err)
		}
		b.until(t, "one is left", settled)
		time.Sleep(time.Minute)
		if after := uids(); len(after) != 1 {
			t.Errorf("after the fleet became smaller: %v", after)
		}
		b.end(t)
		if after := uids(); len(after) != 0 {
			t.Errorf("at the end: %v", after)
		}
	})
}

// A Node that somebody deletes before it has ever been Ready comes back too.
func TestNodeDeletedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := map[string]simulated.Latency{"Status": {Mean: 8 * time.Second}}
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1, Latency: slow}}})
		for { // until the machine has started
			if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultNotReady, For: 30 * time.Second}); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for len(b.nodes(t)) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if s := b.fleet.Status(); s.Nodes.Ready != 0 {
			t.Fatal("the Node is Ready at once")
		}
		first := b.nodes(t)[0].UID
		if err := b.admin.CoreV1().Nodes().Delete(t.Context(), "f-node-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.until(t, "it is back", settled)
		if n := b.nodes(t); len(n) != 1 || n[0].UID == first {
			t.Errorf("Nodes %+v", n)
		}
		b.end(t)
	})
}
