package agenttest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/agent"
)

// The agent sees through its watch what other clients change in its Node, and keeps these changes. If the Node is deleted, the agent logs
// that and does not create the Node again; if the Node returns, the agent reports its status. The agent sends GET requests for the Node
// only while it has no watch.
func TestOthersChangeTheNode(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		ctx := context.Background()
		nodes := w.Admin.CoreV1().Nodes()
		ready := func() bool { return w.NodeReady().Status == v1.ConditionTrue }
		count := func(reason string) (n int32) {
			list, err := w.Admin.CoreV1().Events("").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list.Items {
				if e.Reason == reason {
					n += e.Count
				}
			}
			return n
		}
		get := func() *v1.Node {
			n, err := nodes.Get(ctx, NodeName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		w.Await("the node is Ready", 5*time.Second, ready)
		time.Sleep(time.Minute)
		before := w.Kube.Count("get nodes")
		patch := `{"metadata":{"labels":{"theirs":"1"}},"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]}}`
		if _, err := nodes.Patch(ctx, NodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Await("the event that the node is cordoned", 11*time.Second, func() bool { return count("NodeNotSchedulable") == 1 })
		time.Sleep(10 * time.Minute)
		if n := get(); n.Labels["theirs"] != "1" || !n.Spec.Unschedulable || len(n.Spec.Taints) != 1 || !ready() {
			t.Errorf("the agent reverted changes of other clients: %v %v", n.Labels, n.Spec)
		}
		// a few of the requests are those of this test
		if n := w.Kube.Count("get nodes") - before; n > 5 {
			t.Errorf("got the node %d times beside its watch", n)
		}

		old := get()
		if err := nodes.Delete(ctx, NodeName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if list, err := nodes.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			t.Errorf("a node that was deleted is back: %v", err)
		}
		if log := w.log.String(); !strings.Contains(log, "was deleted while this agent runs") {
			t.Errorf("the log does not report that the node is gone:\n%s", log)
		}
		again := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: old.Labels}}
		if _, err := nodes.Create(ctx, again, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Await("the node that came back is Ready", 11*time.Second, ready)

		w.Outage(time.Minute)
		if _, err := nodes.Patch(ctx, NodeName, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Await("the event of a change during the outage", 2*time.Minute, func() bool { return count("NodeNotSchedulable") == 2 })
	})
}

// lagging delays the events of the watch of Nodes by the time by.
type lagging struct {
	http.RoundTripper
	by time.Duration
}

func (l lagging) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/nodes") && r.URL.Query().Get("watch") != "" {
		resp.Body = &lateBody{ReadCloser: resp.Body, ctx: r.Context(), by: l.by}
	}
	return resp, err
}

type lateBody struct {
	io.ReadCloser
	ctx context.Context
	by  time.Duration
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-time.After(b.by):
	case <-b.ctx.Done():
	}
	return n, err
}

// The watch of pods may be far ahead of the watch of the Node. A pod is never refused because of an old version of the Node: before a
// refusal the agent reads the Node once, and refuses the pod only if the current Node requires it.
func TestRefusalNeverFollowsFromAnOldNode(t *testing.T) {
	t.Parallel()
	cfg := Config{Deps: func(d *agent.Deps) {
		d.Client.Transport = lagging{d.Client.Transport, 4 * time.Minute}
	}}
	Run(t, cfg, func(w *World) {
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		time.Sleep(10 * time.Minute)
		nodes := w.Admin.CoreV1().Nodes()
		patch := func(text string, sub ...string) {
			t.Helper()
			if _, err := nodes.Patch(context.Background(), NodeName, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, sub...); err != nil {
				t.Fatal(err)
			}
		}
		labeled := func(key string) func(*v1.Pod) {
			return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: "1"} }
		}
		patch(`{"metadata":{"labels":{"zone":"1"}}}`)
		w.Create(Pod("labeled", labeled("zone")))
		w.WaitReady("labeled")
		before := w.Kube.Count("get nodes")
		w.Create(Pod("elsewhere", labeled("other")))
		w.WaitPhase("elsewhere", v1.PodFailed)
		if r := w.Kube.Pod(Namespace, "elsewhere").Status.Reason; r != "NodeAffinity" {
			t.Errorf("reason %q", r)
		}
		if n := w.Kube.Count("get nodes") - before; n > 2 {
			t.Errorf("got the node %d times", n)
		}
		patch(`{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`)
		w.Create(Pod("tainted"))
		w.WaitReady("tainted") // the watch has not delivered the taint yet, so the pod runs
		time.Sleep(10 * time.Minute)
		patch(`{"spec":{"taints":null}}`)
		w.Create(Pod("free"))
		w.WaitReady("free")
	})
}
