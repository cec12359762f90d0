package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// bench is a Heartbeat with an API server in memory. It notes each request and each event in a line, with the time since the start.
type bench struct {
	t      *testing.T
	api    *fake.Clientset
	start  time.Time
	mu     sync.Mutex
	lines  []string
	ready  bool
	says   string // further text in the status
	fail   func(verb, resource string) error
	cfg    Config
	logged strings.Builder
	cancel func()
	done   chan error

	measured nodestatus.Facts // the facts of the last computation; only Update uses them
	computed atomic.Int32     // the number of computations
}

func newBench(t *testing.T, objects ...runtime.Object) *bench {
	b := &bench{t: t, api: fake.NewClientset(objects...), start: time.Now(), ready: true, done: make(chan error, 1)}
	b.api.PrependReactor("*", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		line := a.GetVerb() + " " + a.GetResource().Resource
		if a.GetSubresource() != "" {
			line += "/" + a.GetSubresource()
		}
		if g, ok := a.(ktesting.GetActionImpl); ok && g.GetOptions.ResourceVersion == "0" {
			line += " cached"
		}
		b.note(line)
		if c, ok := a.(ktesting.CreateAction); ok && a.GetResource().Resource == "nodes" && c.GetObject().(*v1.Node).UID == "" {
			c.GetObject().(*v1.Node).UID = "u7"
		}
		b.mu.Lock()
		fail := b.fail
		b.mu.Unlock()
		if fail != nil {
			if err := fail(a.GetVerb(), a.GetResource().Resource); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
	b.cfg = Config{
		Nodes: b.api.CoreV1().Nodes(), Lease: b.api.CoordinationV1().Leases(v1.NamespaceNodeLease), NodeName: "n1", Register: true, Source: b, Recorder: b, Rand: func() float64 { return 0.5 },
		OnRepeatedFailure: func() { b.note("close connections") },
		Log:               slog.New(slog.NewTextHandler(&b.logged, nil)),
	}
	return b
}

func (b *bench) note(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf("%s %s", time.Since(b.start), line))
}

// take returns the lines that were noted since the previous call of take and that contain one of the words, and forgets all lines.
func (b *bench) take(words ...string) string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, l := range b.lines {
		for _, w := range words {
			if strings.Contains(l, w) {
				out = append(out, l)
				break
			}
		}
	}
	b.lines = nil
	return strings.Join(out, "\n")
}

func (b *bench) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// failing makes the requests fail that match what: a verb, a resource, or a verb and a resource.
func failing(what string, err error) func(verb, resource string) error {
	return func(verb, resource string) error {
		if what == verb || what == resource || what == verb+" "+resource {
			return err
		}
		return nil
	}
}

func (b *bench) NodeEvent(_, reason, _ string) { b.note("event " + reason) }

func (b *bench) facts() (nodestatus.Settings, nodestatus.Facts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := nodestatus.Facts{
		Now: time.Now(), Machine: nodestatus.Machine{MachineID: "m1", BootID: "b1", CPUs: 1, MemoryBytes: 1 << 30},
		Pressure: pressure.Result{Memory: pressure.False, Disk: pressure.False, PID: pressure.False},
	}
	if !b.ready {
		f.Problems = []string{"not yet"}
	}
	if b.says != "" {
		f.Failing = []string{b.says}
	}
	f.Runtime.LastReady, f.Runtime.Status = f.Now, &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}
	return nodestatus.Settings{Name: "n1", Hostname: "127.0.0.9", OS: "linux", Arch: "amd64", MaxPods: 10}, f
}

func (b *bench) Initial(context.Context) nodestatus.Result {
	s, f := b.facts()
	return nodestatus.Build(s, f)
}

func (b *bench) Update(_ context.Context, node *v1.Node, settled bool) nodestatus.Result {
	s, f := b.facts()
	if settled && f.Same(&b.measured) {
		return nodestatus.Result{}
	}
	b.measured = f
	b.computed.Add(1)
	return nodestatus.Update(s, f, node)
}

func (b *bench) run() *Heartbeat {
	h, err := New(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() { b.done <- h.Run(ctx) }()
	return h
}

func (b *bench) stop() {
	b.cancel()
	if err := <-b.done; err != nil {
		b.t.Errorf("Run: %v", err)
	}
}

func (b *bench) want(want string, words ...string) {
	b.t.Helper()
	if diff := cmp.Diff(strings.ReplaceAll(strings.TrimSpace(want), "\t", ""), b.take(words...)); diff != "" {
		b.t.Error(diff)
	}
}

func ready(b *bench) string {
	n, err := b.api.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return string(c.Status)
		}
	}
	return "none"
}

// A node without changes sends its status once in 5 minutes: "The kubelet updates the node's .status either when there is change in
// status or if there has been no update for a configured interval. The default interval is 5 minutes."
func TestQuietNodeReportsEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		h := b.run()
		b.want("0s event Starting\n0s create nodes\n0s event NodeHasSufficientMemory\n0s event NodeHasNoDiskPressure\n0s event NodeHasSufficientPID\n0s event NodeReady", "nodes", "event")
		time.Sleep(35 * time.Second)
		b.want("10s get nodes cached\n20s get nodes cached\n30s get nodes cached", "nodes", "event")
		time.Sleep(10 * time.Minute)
		b.want("5m0s patch nodes/status\n10m0s patch nodes/status", "patch", "event")
		b.set(func() { b.ready = false })
		time.Sleep(10 * time.Second)
		b.want("10m40s patch nodes/status\n10m40s event NodeNotReady", "patch", "event")
		if got := ready(b); got != "False" {
			t.Errorf("Ready is %s in the API", got)
		}
		if h.Node() == nil || h.Node().Status.Conditions[3].Status != v1.ConditionFalse {
			t.Error("Node() is not what the API last answered")
		}
		b.stop()
	})
}

// watched makes the heartbeat read the Node from a watch, which returns the same pointer until the Node changes.
func (b *bench) watched() {
	var last *v1.Node
	b.cfg.Cached = func() *v1.Node {
		n, err := b.api.Tracker().Get(v1.SchemeGroupVersion.WithResource("nodes"), "", "n1")
		if err != nil {
			return nil
		}
		node := n.(*v1.Node).DeepCopy()
		if node.ManagedFields = nil; last == nil || !equality.Semantic.DeepEqual(last, node) {
			last = node
		}
		return last
	}
}

// While nothing changes, the status is computed for the reports only. Each change is still reported within a round: one that is measured,
// one that another component makes in the API, and one that only the fast computations at the start have seen before.
func TestStatusOfAQuietNodeIsNotComputed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.watched()
		b.run()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		before := b.computed.Load()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := b.computed.Load() - before; n < 4 || n > 12 {
			t.Errorf("in 20 minutes at rest, the status was computed %d times; want once or twice for each of the four reports", n)
		}
		b.take()
		b.set(func() { b.says = "a part" })
		time.Sleep(10 * time.Second)
		b.want("21m10s patch nodes/status", "patch")
		time.Sleep(30 * time.Second)
		b.want("", "patch")
		n, err := b.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions[3].Message = "spoiled"
		if _, err := b.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		b.want("21m50s patch nodes/status", "patch")
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.watched()
		b.ready = false
		b.run()
		time.Sleep(20*time.Second + 50*time.Millisecond)
		b.take()
		b.set(func() { b.says = "a part" })
		time.Sleep(10 * time.Second)
		b.want("30s patch nodes/status", "patch")
		b.stop()
	})
}

func TestReportsAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Rand = func() float64 { return 0.9 } // reports are delayed by 40 % of their period
		b.run()
		time.Sleep(13 * time.Minute)
		b.want("7m0s patch nodes/status\n12m0s patch nodes/status", "patch")
		b.stop()
	})
}

func TestNowComputesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		h := b.run()
		time.Sleep(3 * time.Second)
		b.take()
		b.set(func() { b.ready = false })
		h.Now()
		h.Now()
		b.want("3s patch nodes/status\n3s event NodeNotReady", "patch", "event")
		b.stop()
	})
}

// NodeSince makes the heartbeat read the Node from etcd between two rounds, even if the watch already has a Node. If the watch later
// returns an older Node, it does not replace the one that was read.
func TestNodeSinceReadsPastTheWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u7", ResourceVersion: "5", Labels: map[string]string{"new": "1"}}})
		b.cfg.Register = false
		b.cfg.Cached = func() *v1.Node {
			return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u7", ResourceVersion: "4"}}
		}
		h := b.run()
		time.Sleep(15 * time.Second)
		b.take("get nodes")
		now := time.Now()
		if h.NodeSince(now) {
			t.Error("the Node of the last beat is taken for one of now")
		}
		time.Sleep(time.Millisecond)
		if !h.NodeSince(now) { // one request is enough, although it began at the same virtual time as the first NodeSince
			t.Error("the Node was not read since")
		}
		if got := b.take("get nodes"); got != "15s get nodes" {
			t.Errorf("asked:\n%s", got)
		}
		for range 3 {
			if h.Node().Labels["new"] != "1" {
				t.Errorf("the Node is an old one: version %s", h.Node().ResourceVersion)
			}
			time.Sleep(10 * time.Second)
		}
		b.stop()
	})
}

// While the API server does not answer, NodeSince stays false.
func TestNodeSinceWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		h := b.run()
		time.Sleep(3 * time.Second)
		b.set(func() { b.fail = func(verb, _ string) error { return errors.New("no answer") } })
		now := time.Now()
		for range 10 {
			if h.NodeSince(now) {
				t.Fatal("the API server has not answered")
			}
			time.Sleep(time.Minute)
		}
		b.set(func() { b.fail = nil })
		time.Sleep(11 * time.Second)
		if !h.NodeSince(now) {
			t.Error("not read when the API server answered again")
		}
		b.stop()
	})
}

// Until the node is ready, the status is computed every 100 ms without a PATCH. The PATCH is sent as soon as the node is ready.
func TestReadyAsSoonAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.ready = false
		b.run()
		time.Sleep(2330 * time.Millisecond)
		b.take()
		b.set(func() { b.ready = true })
		time.Sleep(200 * time.Millisecond)
		b.want("2.4s patch nodes/status\n2.4s event NodeReady", "nodes", "event")
		b.set(func() { b.ready = false })
		time.Sleep(2 * time.Second)
		b.want("", "nodes") // fast computations end with the first Ready
		b.stop()
	})
}

func TestFastLooksEndAfterTwoMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.ready = false
		b.run()
		time.Sleep(121 * time.Second)
		b.take()
		b.set(func() { b.ready = true })
		time.Sleep(10 * time.Second)
		b.want("2m10s patch nodes/status", "patch")
		b.stop()
	})
}

// A round has five tries, the first from the cache. Connections are closed from the second failure on, and the next
// round follows after 10 s.
func TestFiveTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		time.Sleep(time.Second)
		b.take()
		b.set(func() {
			b.fail = failing("nodes", errors.New("connection refused"))
		})
		time.Sleep(10 * time.Second)
		b.want(`10s get nodes cached
			10s get nodes
			10s close connections
			10s get nodes
			10s close connections
			10s get nodes
			10s close connections
			10s get nodes
			10s close connections`, "nodes", "close")
		if n := strings.Count(b.logged.String(), "connection refused"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, b.logged.String())
		}
		b.set(func() { b.fail = nil; b.ready = false })
		time.Sleep(10 * time.Second)
		b.want("20s get nodes cached\n20s patch nodes/status", "nodes")
		b.stop()
	})
}

// The status is not computed from a Node that is older than the API server's answer to the last PATCH.
func TestOldCacheIsNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := existing()
		node.ResourceVersion = "10"
		b := newBench(t, node)
		old := node.DeepCopy()
		b.api.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			newer := node.DeepCopy()
			newer.ResourceVersion, newer.Labels = "12", map[string]string{"newer": "1"}
			return true, newer, nil
		})
		b.cfg.Cached = func() *v1.Node { return old }
		h := b.run()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if h.Node().Labels["newer"] != "1" {
			t.Errorf("computed from resourceVersion %s", h.Node().ResourceVersion)
		}
		if got := b.take("get nodes cached"); got != "" {
			t.Errorf("asked the API though the agent watches the node:\n%s", got)
		}
		b.stop()
	})
}

func TestCordonIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, existing())
		b.run()
		for _, want := range []string{"event NodeNotSchedulable", "event NodeSchedulable"} {
			time.Sleep(10 * time.Second)
			b.take()
			n, err := b.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n.Spec.Unschedulable = !n.Spec.Unschedulable
			if _, err := b.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(21 * time.Second)
			if got := b.take("Schedulable", "NotSchedulable"); strings.Count(got, want) != 1 {
				t.Errorf("recorded %q, want one %s", got, want)
			}
		}
		b.stop()
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	api := fake.NewClientset()
	nodes, leases := api.CoreV1().Nodes(), api.CoordinationV1().Leases(v1.NamespaceNodeLease)
	for want, cfg := range map[string]Config{
		"Nodes":                    {Lease: leases, NodeName: "n", Source: &bench{}},
		"Lease ":                   {Nodes: nodes, NodeName: "n", Source: &bench{}},
		"NodeName":                 {Nodes: nodes, Lease: leases, Source: &bench{}},
		"Source":                   {Nodes: nodes, Lease: leases, NodeName: "n"},
		"nodeLeaseDurationSeconds": {Nodes: nodes, Lease: leases, NodeName: "n", Source: &bench{}, LeaseDuration: 999 * time.Millisecond},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
