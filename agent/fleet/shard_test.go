package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// sharedBench is several fleets that share their nodes through one API server in memory, in virtual time. It checks two rules at each
// request: a request as a node comes from the process that holds the node's slice, and no Node stops being Ready.
type sharedBench struct {
	kube  *simkube.Kube
	admin *kubernetes.Clientset
	nodes int
	t     *testing.T

	mu      sync.Mutex
	holders map[string]string // of the leases of slices
	longest time.Duration     // between two renewals of a node's lease
}

// gracePeriod is how old the lease of a node may be before the cluster considers the node as gone, in the default configuration.
const gracePeriod = 50 * time.Second

func newShared(t *testing.T, nodes int) *sharedBench {
	t.Helper()
	b := &sharedBench{t: t, nodes: nodes, holders: map[string]string{}}
	b.kube = simkube.New(simkube.Config{Latency: 5 * time.Millisecond, OnChange: b.changed})
	var err error
	if b.admin, err = kubernetes.NewForConfig(b.kube.RESTConfig("test")); err != nil {
		t.Fatal(err)
	}
	return b
}

// changed is called for each change in the API.
func (b *sharedBench) changed(typ watch.EventType, old, obj runtime.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := obj.(type) {
	case *coordinationv1.Lease:
		if o.Labels[fleet.LabelLease] == "slice" {
			b.holders[o.Name] = *o.Spec.HolderIdentity
		}
		was, ok := old.(*coordinationv1.Lease)
		if ok && o.Namespace == v1.NamespaceNodeLease && typ == watch.Modified {
			b.longest = max(b.longest, o.Spec.RenewTime.Sub(was.Spec.RenewTime.Time))
		}
	case *v1.Node:
		if was, ok := old.(*v1.Node); ok && typ == watch.Modified && isReady(was) && !isReady(o) {
			b.t.Errorf("%s: node %s is not Ready any more", time.Now().Format(time.TimeOnly), o.Name)
		}
	}
}

func isReady(n *v1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// process is one of the fleets. It stands for a process: it can be killed, and cut off from the API server.
type process struct {
	*fleet.Fleet
	b     *sharedBench
	name  string
	dead  atomic.Bool
	cut   atomic.Pointer[chan struct{}]
	end   context.CancelFunc
	ended chan error
}

var errKilled = errors.New("the process is dead")

// RoundTrip sends a request of the process, and checks that a request as a node comes from the holder of its slice.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.dead.Load() {
		return nil, errKilled
	}
	if cut := p.cut.Load(); cut != nil {
		select {
		case <-*cut:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	node, as := strings.CutPrefix(r.Header.Get("Impersonate-User"), "system:node:")
	if as && r.URL.Query().Get("limit") != "1" { // a list with the limit 1 is the question whether nodes can be impersonated
		lease := fleet.SliceLease("f", node, p.b.nodes)
		p.b.mu.Lock()
		holder := p.b.holders[lease]
		p.b.mu.Unlock()
		if !strings.HasPrefix(holder, p.name+"_") {
			p.b.t.Errorf("%s: process %s runs node %s, but %q holds %s: %s %s", time.Now().Format(time.TimeOnly), p.name, node, holder, lease, r.Method, r.URL)
		}
	}
	return p.b.kube.RoundTrip(r)
}

// run starts a process. It ends with the test.
func (b *sharedBench) run(name string, change func(*fleet.Config)) *process {
	b.t.Helper()
	p := &process{b: b, name: name, ended: make(chan error, 2)}
	cfg := fleet.Config{
		Name: "f", Groups: []fleet.Group{{Count: b.nodes}}, Shard: fleet.Shard{Name: name},
		Client: &rest.Config{Host: "http://simkube", Transport: p},
	}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("process", name)
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if p.Fleet, err = fleet.New(cfg); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	p.end = cancel
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.ended <- p.Run(ctx)
	}()
	b.t.Cleanup(func() {
		cancel()
		if cut := p.cut.Swap(nil); cut != nil {
			close(*cut)
		}
		<-gone
	})
	return p
}

// kill ends a process as kill -9 does: none of its requests reaches the API server any more.
func (p *process) kill() {
	p.dead.Store(true)
	p.end()
	<-p.ended
}

// partition cuts the process off from the API server, and heal ends that.
func (p *process) partition() {
	cut := make(chan struct{})
	p.cut.Store(&cut)
}

func (p *process) heal() { close(*p.cut.Swap(nil)) }

// stop ends a process in an orderly way.
func (p *process) stop() {
	p.b.t.Helper()
	p.end()
	if err := <-p.ended; err != nil {
		p.b.t.Errorf("%s: %v", p.name, err)
	}
}

// watchFor lets time pass, and returns the longest time for which no process ran some node. It fails the test if two processes run one.
func (b *sharedBench) watchFor(d time.Duration, all ...*process) (unserved time.Duration) {
	b.t.Helper()
	const pace = 100 * time.Millisecond
	without := map[string]time.Duration{}
	for range d / pace {
		by := map[string]string{}
		for _, p := range all {
			if p.dead.Load() {
				continue
			}
			for _, n := range p.Nodes() {
				if n.State == "leaving" {
					continue
				}
				if other := by[n.Name]; other != "" {
					b.t.Errorf("%s and %s run node %s", other, p.name, n.Name)
				}
				by[n.Name] = p.name
			}
		}
		for i := range b.nodes {
			name := fmt.Sprintf("f-node-%d", i+1)
			if by[name] != "" {
				without[name] = 0
				continue
			}
			without[name] += pace
			unserved = max(unserved, without[name])
		}
		time.Sleep(pace)
	}
	return unserved
}

// settle waits until all nodes are Ready and each process holds what it should hold.
func (b *sharedBench) settle(all ...*process) {
	b.t.Helper()
	for range 1200 {
		ok, total := true, 0
		for _, p := range all {
			s := p.Status()
			ok = ok && s.Settled() && len(s.Shard.Shards) == len(all)
			total += s.Nodes.Ready
		}
		if ok && total == b.nodes {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, p := range all {
		s := p.Status()
		b.t.Logf("%s: %+v %+v", p.name, s.Nodes, *s.Shard)
	}
	b.t.Fatalf("not settled after two minutes")
}

// leases returns the leases of the fleet, and how many of them have a holder.
func (b *sharedBench) leases() (held, all int) {
	b.t.Helper()
	l, err := b.admin.CoordinationV1().Leases("kube-system").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, lease := range l.Items {
		if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
			held++
		}
	}
	return held, len(l.Items)
}

func (b *sharedBench) nodeNames() (out []string) {
	b.t.Helper()
	l, err := b.admin.CoreV1().Nodes().List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, n := range l.Items {
		out = append(out, n.Name)
	}
	return out
}

// takeLongest returns the longest time between two renewals of a node's lease since the last call.
func (b *sharedBench) takeLongest() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.longest
	b.longest = 0
	return d
}

// fresh fails the test if the lease of a node is older than d.
func (b *sharedBench) fresh(d time.Duration) {
	b.t.Helper()
	l, err := b.admin.CoordinationV1().Leases(v1.NamespaceNodeLease).List(b.t.Context(), metav1.ListOptions{})
	if err != nil || len(l.Items) != b.nodes {
		b.t.Fatalf("%d leases of nodes: %v", len(l.Items), err)
	}
	for _, lease := range l.Items {
		if age := time.Since(lease.Spec.RenewTime.Time); age > d {
			b.t.Errorf("the lease of %s is %s old", lease.Name, age)
		}
	}
}

// Three processes share 300 nodes. One is killed, one joins, one is cut off from the API server and comes back, and one ends. At each moment
// at most one process runs a node, and no node becomes NotReady. At the end nothing is left.
func TestProcessesShareAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShared(t, 300)
		a, c, d := b.run("a", nil), b.run("c", nil), b.run("d", nil)
		b.settle(a, c, d)
		for _, p := range []*process{a, c, d} {
			if n := p.Status().Nodes.Want; n < 80 || n > 120 {
				t.Errorf("%s runs %d of 300 nodes", p.name, n)
			}
		}
		b.watchFor(time.Minute, a, c, d)
		b.takeLongest()

		d.kill()
		if gap := b.watchFor(40*time.Second, a, c); gap > 25*time.Second {
			t.Errorf("a process was killed: a node did not run for %s", gap)
		}
		b.settle(a, c)
		if gap := b.takeLongest(); gap > 35*time.Second {
			t.Errorf("a process was killed: %s between two renewals of a lease, the grace period is %s", gap, gracePeriod)
		}
		b.fresh(11 * time.Second)

		e := b.run("e", nil)
		if gap := b.watchFor(30*time.Second, a, c, e); gap > 3*time.Second {
			t.Errorf("a process joined: a node did not run for %s", gap)
		}
		b.settle(a, c, e)
		if gap := b.takeLongest(); gap > 15*time.Second {
			t.Errorf("a process joined: %s between two renewals of a lease", gap)
		}

		c.partition()
		if gap := b.watchFor(40*time.Second, a, c, e); gap > 12*time.Second {
			t.Errorf("a process was cut off: a node did not run for %s", gap)
		}
		if s := c.Status(); s.Nodes.Present != 0 {
			t.Errorf("the process that is cut off runs nodes: %+v", s.Nodes)
		}
		b.settle(a, e)
		b.fresh(11 * time.Second)
		c.heal()
		b.watchFor(30*time.Second, a, c, e)
		b.settle(a, c, e)
		if gap := b.takeLongest(); gap > 40*time.Second {
			t.Errorf("a process was cut off: %s between two renewals of a lease", gap)
		}

		a.stop()
		if gap := b.watchFor(10*time.Second, c, e); gap > 3*time.Second {
			t.Errorf("a process ended: a node did not run for %s", gap)
		}
		b.settle(c, e)
		c.stop()
		e.stop()
		if held, all := b.leases(); held != 0 || all != 17 { // of 16 slices and of the fleet; that of d was deleted: see TestDeadShardsAreForgotten
			t.Errorf("%d of %d leases are held at the end", held, all)
		}
		if n := len(b.nodeNames()); n != 300 {
			t.Errorf("%d nodes at the end", n)
		}
		client := b.kube.RESTConfig("test")
		if err := fleet.CleanShards(t.Context(), client, "", "f"); err != nil {
			t.Error(err)
		}
		if done, err := fleet.Clean(t.Context(), client, "f"); err != nil || done.Nodes != 300 {
			t.Errorf("clean: %+v, %v", done, err)
		}
		if _, all := b.leases(); all != 0 || len(b.nodeNames()) != 0 {
			t.Errorf("%d leases and %d nodes are left", all, len(b.nodeNames()))
		}
	})
}

// A process that is killed and started again under its name waits until its old lease has run out. A second process of the same name that
// is alive is refused, and so is one with other groups of nodes; once the others are dead, other groups are in force.
func TestWhoMayShareAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShared(t, 4)
		a := b.run("a", nil)
		b.settle(a)
		if err := <-b.run("a", nil).ended; !errors.Is(err, fleet.ErrShardRuns) {
			t.Errorf("a second process of the name: %v", err)
		}
		other := func(cfg *fleet.Config) { cfg.Groups[0].CPUs = 7 }
		if err := <-b.run("c", other).ended; !errors.Is(err, fleet.ErrShape) {
			t.Errorf("a process with other groups: %v", err)
		}
		input := func(cfg *fleet.Config) { cfg.Shard.Input = "other rules" }
		if err := <-b.run("c", input).ended; !errors.Is(err, fleet.ErrShape) {
			t.Errorf("a process with other rules: %v", err)
		}
		if err := fleet.CleanShards(t.Context(), b.kube.RESTConfig("test"), "", "f"); err == nil || !strings.Contains(err.Error(), "the fleet f runs: a_") {
			t.Errorf("clean a fleet that runs: %v", err)
		}
		a.kill()
		began := time.Now()
		again := b.run("a", nil)
		b.settle(again)
		if took := time.Since(began); took < 14*time.Second || took > 25*time.Second {
			t.Errorf("the process that was killed is back after %s", took)
		}
		again.kill()
		changed := b.run("c", other)
		b.settle(changed)
		changed.stop()
	})
}

// The number of nodes is changed for all processes, also for those that start later. Nodes of a process that was dead at that time are removed
// by those that take its slices.
func TestScaleOfASharedFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShared(t, 20)
		a, c := b.run("a", nil), b.run("c", nil)
		b.settle(a, c)
		if err := a.Scale("", 30); err != nil {
			t.Fatal(err)
		}
		b.awaitNodes(30)
		c.kill()
		if err := a.Scale("", 6); err != nil {
			t.Fatal(err)
		}
		b.awaitNodes(6)
		d := b.run("d", nil)
		time.Sleep(20 * time.Second)
		b.awaitNodes(6)
		if err := d.Scale("other", 3); !errors.Is(err, fleet.ErrNoGroup) {
			t.Errorf("an unknown group: %v", err)
		}
		if total := a.Status().Nodes.Want + d.Status().Nodes.Want; total != 6 || a.Status().Shard.Nodes != 6 {
			t.Errorf("the processes run %d nodes: %+v, %+v", total, a.Status(), d.Status())
		}
	})
}

func (b *sharedBench) awaitNodes(n int) {
	b.t.Helper()
	for range 600 {
		if len(b.nodeNames()) == n {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatalf("%d nodes after a minute, want %d", len(b.nodeNames()), n)
}

// The lease of a shard that was killed is deleted by the others when it has run out, so that processes with names of their own leave nothing.
func TestDeadShardsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShared(t, 2)
		a, c := b.run("a", nil), b.run("c", nil)
		b.settle(a, c)
		c.kill()
		time.Sleep(25 * time.Second)
		if held, all := b.leases(); held != 17 || all != 18 {
			t.Errorf("%d of %d leases are held", held, all)
		}
	})
}

// To its pods, a node whose process was killed is a machine that has rebooted: containers that should run start again, and pods that have
// ended stay as they are. The pods of a process that takes the node count for it, also those that do not change.
func TestPodsOfATakenNode(t *testing.T) {
	t.Parallel()
	after := func(t *testing.T, take bool) map[string]string {
		t.Helper()
		out := map[string]string{}
		synctest.Test(t, func(t *testing.T) {
			b := newShared(t, 1)
			a := b.run("a", nil)
			b.settle(a)
			for name, policy := range map[string]v1.RestartPolicy{"always": v1.RestartPolicyAlways, "never": v1.RestartPolicyNever, "on-failure": v1.RestartPolicyOnFailure} {
				b.pod(name, policy, nil)
			}
			b.pod("over", v1.RestartPolicyNever, map[string]string{"wherry.dev/sim-run-for": "1s"})
			b.pod("crashes", v1.RestartPolicyAlways, map[string]string{"wherry.dev/sim-run-for": "1s", "wherry.dev/sim-exit-code": "1"})
			time.Sleep(45 * time.Second)
			runs := a
			if take {
				a.kill()
				runs = b.run("c", nil)
			} else {
				if _, err := a.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultCrash, For: 20 * time.Second}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(40 * time.Second)
			if s := runs.Status(); s.Pods.Succeeded != 1 {
				t.Errorf("take-over %t: pods %+v", take, s.Pods)
			}
			l, err := b.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range l.Items {
				out[p.Name] = string(p.Status.Phase)
				if p.Name != "crashes" { // the back-off of a container that crashes depends on the moment
					out[p.Name] += fmt.Sprintf(" restarts=%d", p.Status.ContainerStatuses[0].RestartCount)
				}
			}
		})
		return out
	}
	reboot, taken := after(t, false), after(t, true)
	if fmt.Sprint(reboot) != fmt.Sprint(taken) {
		t.Errorf("after a reboot: %v\nafter the node was taken: %v", reboot, taken)
	}
	if want := "map[always:Running restarts=1 crashes:Running never:Failed restarts=1 on-failure:Running restarts=1 over:Succeeded restarts=0]"; fmt.Sprint(taken) != want {
		t.Errorf("after the node was taken: %v, want %s", taken, want)
	}
}

// pod creates a pod on node 1.
func (b *sharedBench) pod(name string, policy v1.RestartPolicy, annotations map[string]string) {
	b.t.Helper()
	_, err := b.admin.CoreV1().Pods("default").Create(b.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       v1.PodSpec{NodeName: "f-node-1", RestartPolicy: policy, Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
}
