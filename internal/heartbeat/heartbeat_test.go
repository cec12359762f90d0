package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/nodestatus"
	"github.com/wherry-node/wherry/internal/pressure"
)

// bench is one Heartbeat over an API in memory, and a log of what happened when, in time since the start.
type bench struct {
	t      *testing.T
	api    *fake.Clientset
	start  time.Time
	mu     sync.Mutex
	lines  []string
	ready  bool
	fail   func(verb, resource string) error
	cfg    Config
	logged strings.Builder
	cancel func()
	done   chan error
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

// take returns what happened since the last take and matches a word, lease renewals apart when not asked for.
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
	f.Runtime.LastReady, f.Runtime.Status = f.Now, &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}
	return nodestatus.Settings{Name: "n1", Hostname: "127.0.0.9", OS: "linux", Arch: "amd64", MaxPods: 10}, f
}

func (b *bench) Initial(context.Context) nodestatus.Result {
	s, f := b.facts()
	return nodestatus.Build(s, f)
}

func (b *bench) Update(_ context.Context, node *v1.Node) nodestatus.Result {
	s, f := b.facts()
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

// "The kubelet updates the node's .status either when there is change in status or if there has been no update for a
// configured interval. The default interval is 5 minutes."
func TestQuietNodeReportsEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		h := b.run()
		b.want("0s event Starting\n0s create nodes\n0s event NodeHasSufficientMemory\n0s event NodeHasNoDiskPressure\n0s event NodeHasSufficientPID\n0s event NodeReady\n0s get nodes cached", "nodes", "event")
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

func TestReportsAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Rand = func() float64 { return 0.9 } // 40 % later
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

// Who must know what others have just written on the Node has it read between two beats.
func TestNodeSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		h := b.run()
		time.Sleep(3 * time.Second)
		now := time.Now()
		if h.NodeSince(now) {
			t.Error("the Node of the last beat is taken for one of now")
		}
		time.Sleep(time.Millisecond)
		if h.NodeSince(now) { // asked in the same instant of a bubble's clock
			t.Error("asked at once")
		}
		time.Sleep(time.Millisecond)
		if !h.NodeSince(now) {
			t.Error("not read since")
		}
		b.stop()
	})
}

// Until the node is ready the status is computed every 100 ms, and the API hears of it only when it is.
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
		b.want("", "nodes") // only once
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

// Five tries, the first from the cache, connections closed from the second failure on, again after 10 s.
func TestFiveTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		time.Sleep(time.Second)
		b.take()
		b.set(func() {
			b.fail = func(_, resource string) error {
				if resource == "nodes" {
					return errors.New("connection refused")
				}
				return nil
			}
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

// Registration backs off from 200 ms to 7 s, and says what is wrong when the name is another's.
func TestRegistrationBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail = func(_, resource string) error {
			if resource == "nodes" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New(`node "n2" is not allowed to modify node "n1"`))
			}
			return nil
		}
		b.run()
		time.Sleep(30 * time.Second)
		b.want(`0s create nodes
			200ms create nodes
			600ms create nodes
			1.4s create nodes
			3s create nodes
			6.2s create nodes
			12.6s create nodes
			19.6s create nodes
			26.6s create nodes`, "create nodes")
		if log := b.logged.String(); strings.Count(log, "system:node:n1") != 1 {
			t.Errorf("the log does not say once whose name it is:\n%s", log)
		}
		b.set(func() { b.fail = nil })
		time.Sleep(10 * time.Second)
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s after the obstacle went", got)
		}
		b.stop()
	})
}

func existing() *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"theirs": "1"}},
		Spec:       v1.NodeSpec{ProviderID: "x://1", PodCIDRs: []string{"10.1.0.0/24"}},
		Status:     v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{MachineID: "m0", BootID: "b0"}, Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, {Type: v1.NodeInternalIP, Address: "192.0.2.2"}}},
	}
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, existing())
		var cidrs [][]string
		fails := 1
		b.cfg.PodCIDR = func(_ context.Context, c []string) error {
			if fails--; fails >= 0 {
				return errors.New("runtime is busy")
			}
			cidrs = append(cidrs, c)
			return nil
		}
		b.run()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		n, err := b.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{
			"theirs": n.Labels["theirs"], "os": n.Labels[v1.LabelOSStable], "provider": n.Spec.ProviderID, "ready": ready(b),
			"addresses": n.Status.Addresses, "cidrs": cidrs, "warned": strings.Contains(b.logged.String(), "another machine"),
		}
		want := map[string]any{
			"theirs": "1", "os": "linux", "provider": "x://1", "ready": "True", "cidrs": [][]string{{"10.1.0.0/24"}}, "warned": true,
			"addresses": []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "127.0.0.9"}, {Type: v1.NodeHostName, Address: "127.0.0.9"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if events := b.take("event Rebooted"); strings.Count(events, "\n") != 0 || events == "" {
			t.Errorf("Rebooted should be told once: %q", events)
		}
		b.stop()
	})
}

// A node that may not create itself takes the object that an administrator made for it.
func TestForbiddenCreateAdoptsWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, existing())
		b.fail = func(verb, resource string) error {
			if verb == "create" && resource == "nodes" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no"))
			}
			return nil
		}
		b.run()
		b.want("0s create nodes\n0s get nodes\n0s patch nodes/status\n0s get nodes cached\n0s patch nodes/status", "nodes")
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s", got)
		}
		b.stop()
	})
}

func TestWithoutRegisterNothingIsCreated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Register = false
		b.run()
		time.Sleep(45 * time.Second)
		if got := b.take("create nodes", "create leases", "patch"); got != "" {
			t.Errorf("wrote to the API:\n%s", got)
		}
		if log := b.logged.String(); strings.Count(log, "--register-node=true") != 1 {
			t.Errorf("the log does not say once what is missing:\n%s", log)
		}
		if _, err := b.api.CoreV1().Nodes().Create(t.Context(), existing(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s on a Node that somebody created", got)
		}
		if got := b.take("create leases"); got == "" {
			t.Error("no lease was created")
		}
		b.stop()
	})
}

// An answer that is older than the last PATCH's is not computed from.
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

func TestCordonIsTold(t *testing.T) {
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
				t.Errorf("told %q, want one %s", got, want)
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
		"nodeLeaseDurationSeconds": {Nodes: nodes, Lease: leases, NodeName: "n", Source: &bench{}, LeaseDuration: time.Second},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
