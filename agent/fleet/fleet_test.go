package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// bench is a fleet and the API server in memory that it uses, in virtual time (synctest).
type bench struct {
	kube   *simkube.Kube
	admin  *kubernetes.Clientset
	fleet  *fleet.Fleet
	ended  chan error
	cancel context.CancelFunc
}

func start(t *testing.T, cfg fleet.Config) *bench {
	t.Helper()
	b := &bench{kube: simkube.New(simkube.Config{Latency: 5 * time.Millisecond}), ended: make(chan error, 2)}
	var err error
	if b.admin, err = kubernetes.NewForConfig(b.kube.RESTConfig("test")); err != nil {
		t.Fatal(err)
	}
	b.run(t, cfg)
	return b
}

// run starts a fleet that uses the bench's API server. The fleet ends with the test.
func (b *bench) run(t *testing.T, cfg fleet.Config) {
	t.Helper()
	cfg.Client = b.kube.RESTConfig("fleet")
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	var err error
	if b.fleet, err = fleet.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	f, ended := b.fleet, b.ended
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended <- f.Run(ctx)
	}()
	t.Cleanup(func() { // also after a failure, because no goroutine of the fleet may remain in the synctest bubble
		cancel()
		<-gone
	})
}

// until waits until done returns true for the fleet's status. After a minute it fails the test.
func (b *bench) until(t *testing.T, what string, done func(fleet.Status) bool) {
	t.Helper()
	var s fleet.Status
	for range 600 {
		if s = b.fleet.Status(); done(s) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: not after a minute: %+v", what, s)
}

func settled(s fleet.Status) bool { return s.Settled() }

func (b *bench) end(t *testing.T) {
	t.Helper()
	b.cancel()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
}

func (b *bench) nodes(t *testing.T) (out []v1.Node) {
	t.Helper()
	l, err := b.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func (b *bench) createPod(t *testing.T, name, node string) {
	t.Helper()
	_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// Nodes of two groups join with their groups' sizes, labels and taints, run pods, and renew their leases. After Run, no Node and no pod
// remains.
func TestFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Taint: true, Groups: []fleet.Group{
			{Name: "small", Count: 20, CPUs: 2, Zones: []string{"a", "b"}, Labels: map[string]string{"tier": "small"}},
			{Name: "big", Count: 3, CPUs: 64, ProviderID: "sim://{node}", Taints: []v1.Taint{{Key: "big", Effect: v1.TaintEffectNoSchedule}}},
		}})
		b.until(t, "all join", settled)
		for _, n := range b.nodes(t) {
			var taints []string
			for _, x := range n.Spec.Taints {
				taints = append(taints, x.ToString())
			}
			got := fmt.Sprint(n.Status.Capacity.Cpu(), n.Labels[v1.LabelTopologyZone], n.Labels["tier"], n.Labels[fleet.LabelFleet], n.Spec.ProviderID, taints)
			switch n.Name {
			case "f-small-2":
				if want := "2bsmallf[wherry.dev/simulated=true:NoSchedule]"; strings.ReplaceAll(got, " ", "") != want {
					t.Errorf("%s: %s, want %s", n.Name, got, want)
				}
			case "f-big-3":
				if want := "64fsim://f-big-3[big:NoSchedulewherry.dev/simulated=true:NoSchedule]"; strings.ReplaceAll(got, " ", "") != want {
					t.Errorf("%s: %s, want %s", n.Name, got, want)
				}
			}
		}
		for i := range 23 {
			b.createPod(t, fmt.Sprint("p", i), b.nodes(t)[i].Name)
		}
		b.until(t, "all pods run", func(s fleet.Status) bool { return s.Pods.Running == 23 && s.Pods.Ready == 23 })
		time.Sleep(2 * time.Minute)
		s := b.fleet.Status()
		if !s.Settled() || s.Leases.Failed > 0 || s.Leases.P99 > time.Second {
			t.Errorf("after two minutes at rest: %+v", s)
		}
		leases, err := b.admin.CoordinationV1().Leases("kube-node-lease").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(leases.Items) != 23 {
			t.Fatalf("%d leases: %v", len(leases.Items), err)
		}
		for _, l := range leases.Items {
			if age := time.Since(l.Spec.RenewTime.Time); age > 11*time.Second {
				t.Errorf("the lease of %s is %s old", l.Name, age)
			}
		}
		b.end(t)
		pods, err := b.admin.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 0 || len(b.nodes(t)) != 0 {
			t.Errorf("left behind: %d pods, %d nodes, %v", len(pods.Items), len(b.nodes(t)), err)
		}
	})
}

// Scale adds and removes nodes. The pods on a removed node are removed too.
func TestScale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 4}}})
		b.until(t, "4 join", settled)
		b.createPod(t, "stays", "f-node-1")
		b.createPod(t, "goes", "f-node-4")
		b.until(t, "both run", func(s fleet.Status) bool { return s.Pods.Running == 2 })
		if err := b.fleet.Scale("", 2); err != nil {
			t.Fatal(err)
		}
		b.until(t, "2 are left", func(s fleet.Status) bool { return s.Settled() && s.Pods.Running == 1 })
		if n := len(b.nodes(t)); n != 2 {
			t.Errorf("%d nodes in the cluster, want 2", n)
		}
		if err := b.fleet.Scale("node", 6); err != nil {
			t.Fatal(err)
		}
		b.until(t, "6 are there", func(s fleet.Status) bool { return s.Settled() && s.Nodes.Ready == 6 })
		if err := b.fleet.Scale("other", 6); err == nil || !strings.Contains(err.Error(), "the fleet has node") {
			t.Errorf("an unknown group: %v", err)
		}
		if err := b.fleet.Scale("", -1); err == nil {
			t.Error("a negative number is accepted")
		}
		b.end(t)
	})
}

// A fleet takes over no Node that is not its own, and a second process cannot run the same fleet. Nodes that a fleet left in the cluster
// are adopted by the next Run of that fleet, or removed by Clean.
func TestFleetTakesNothingOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 2}}})
		b.until(t, "both join", settled)
		time.Sleep(5 * time.Second) // until the leases exist
		first := b.ended
		b.ended = make(chan error, 2)
		end := b.cancel
		b.run(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 2}}})
		if err := <-b.ended; err == nil || !strings.Contains(err.Error(), "the fleet f runs already: node f-node-") {
			t.Errorf("a second fleet of the name: %v", err)
		}
		b.run(t, fleet.Config{Name: "g", Groups: []fleet.Group{{Count: 2, NodeName: "f-node-{index}"}}})
		if err := <-b.ended; err == nil || !strings.Contains(err.Error(), "that is not of this fleet") {
			t.Errorf("a fleet with the nodes of another: %v", err)
		}
		end()
		if err := <-first; err != nil || len(b.nodes(t)) != 2 {
			t.Fatalf("with Keep: %v, %d nodes", err, len(b.nodes(t)))
		}
		time.Sleep(time.Minute)
		b.run(t, fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 3}}})
		b.until(t, "the nodes that were left are adopted", settled)
		b.createPod(t, "p", "f-node-1")
		b.end(t)
		time.Sleep(time.Minute)
		if done, err := fleet.Clean(t.Context(), b.kube.RESTConfig("test"), "other"); err != nil || done != (fleet.Removed{}) {
			t.Errorf("clean another fleet: %+v, %v", done, err)
		}
		done, err := fleet.Clean(t.Context(), b.kube.RESTConfig("test"), "")
		if want := (fleet.Removed{Nodes: 3, Pods: 1}); err != nil || done != want {
			t.Errorf("clean: %+v, %v, want %+v", done, err, want)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	client := simkube.New(simkube.Config{}).RESTConfig("test")
	for _, c := range []struct {
		cfg  fleet.Config
		want string
	}{
		{fleet.Config{Groups: []fleet.Group{{Count: 1}}}, "Config.Client: it is required"},
		{fleet.Config{Client: client}, "Config.Groups: there must be at least one"},
		{fleet.Config{Client: client, Name: "A b", Groups: []fleet.Group{{}}}, `Config.Name: "A b"`},
		{fleet.Config{Client: client, Identity: "x", Groups: []fleet.Group{{}}}, "Config.Identity"},
		{fleet.Config{Client: client, Identity: fleet.Certificate, Shard: fleet.Shard{Name: "a"}, Groups: []fleet.Group{{}}}, "Config.Identity: processes that share"},
		{fleet.Config{Client: client, Storage: true, Shard: fleet.Shard{Name: "a"}, Groups: []fleet.Group{{}}}, "Config.Storage"},
		{fleet.Config{Client: client, Groups: []fleet.Group{{Count: -1}}}, "Config.Groups[0].count: -1"},
		{fleet.Config{Client: client, Groups: []fleet.Group{{Name: "a", Count: 2, NodeName: "n-{index}"}, {Name: "b", Count: 1, NodeName: "n-{index}"}}}, `two nodes have the name "n-1"`},
	} {
		if _, err := fleet.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
